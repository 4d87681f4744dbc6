"""Format pending reasons briefly, with the numbers first."""

import re
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from django.utils.dateparse import parse_datetime

from berth.core.values.amounts import MILLI
from berth.core.wording.words import format_amount, to_words
from projects.models import Workload
from projects.services.workloads.pending.unschedulable import REASON as UNSCHEDULABLE
from scheduler.engine.entire_bounds import NON_PREEMPTIBLE_REASONS
from scheduler.engine.explain.headline import BOUNDED, bound_name, headline
from scheduler.engine.plan import Reason
from scheduler.models import QueueStatus

# A workload that is expected to start at least this long after its restart delay also waits for something
# else.
DELAY_MARGIN = timedelta(minutes=1)
AWAITS_SHARE = "awaits_share"  # attribute that `load_awaited_shares` sets
CAN_START = "Can start from "
BACKOFF_END = re.compile(r"^Can start again at ")
# The message of a delay whose cause is a number of evictions or failed runs.
COUNTED_BACKOFF = re.compile(r"^Can start again at (?P<end>[^,]+), after (?P<causes>\d+ [a-z0-9 ]+)\.?$")


def short_reason(workload: Workload) -> str:
    """Return one short line that says why a workload is pending, such as "Needs 6 GPUs, 1.25 are free".

    For a restart delay, the line states the end of the delay and, if that does not suffice, what the workload
    waits for after that. For a workload that can never start, the line is the workload's message.
    """
    if workload.reason == UNSCHEDULABLE:
        return workload.message[:1].upper() + workload.message[1:] or "Can never start"
    if workload.reason != Reason.BACKOFF or workload.backoff_until is None:
        return _fact(workload) or to_words(workload.reason) or "Not evaluated yet"
    until = f"{workload.backoff_until:%Y-%m-%d %H:%M:%S} UTC"
    return (
        f"Waits {awaited} from {until}" if (awaited := awaited_after_delay(workload)) else CAN_START + until
    )


def _fact(workload: Workload) -> str:
    blockers = (workload.explanation or {}).get("blockers") or []
    if not blockers or blockers[0].get("reason") != workload.reason:
        return ""
    return headline([(each["reason"], each.get("numbers") or {}) for each in blockers])


def brief_reason(workload: Workload) -> str:
    """Return a short form of the first pending reason for use in lists.

    For example: "vision: 12 of fair share 11", for 12 allocated GPUs. For held quota, and for reasons that
    do not concern a queue's bounds, the text is the workload's message, reworded for restart delays.
    """
    blockers = (workload.explanation or {}).get("blockers") or [{}]
    numbers = blockers[0].get("numbers") or {}
    if (
        workload.reason not in BOUNDED
        or blockers[0].get("reason") != workload.reason
        or numbers.get("bound") is None
        or "behind" in numbers
    ):
        return _with_wait_after_delay(workload, _backoff_phrase(workload.message))
    resource, queue = str(numbers["resource"]), numbers["queue"]
    allocated, most = (_format_number(resource, numbers[key]) for key in ("allocated", "bound"))
    unit = " CPUs" if resource == "cpu" else ""
    kind = " non-preemptible" if workload.reason in NON_PREEMPTIBLE_REASONS else ""
    name = bound_name(workload.reason, numbers)
    return f"{queue}: {allocated}{kind} of {name}\N{NO-BREAK SPACE}{most}{unit}"


def waits_after_delay(workload: Workload) -> bool:
    """Return whether the workload is expected to start later than its restart delay alone would allow."""
    starts = parse_datetime((workload.explanation or {}).get("expected_start") or "")
    until = workload.backoff_until
    if workload.reason != Reason.BACKOFF or until is None or starts is None:
        return False
    return starts - until >= DELAY_MARGIN


def load_awaited_shares(workloads: Sequence[Workload]) -> None:
    """Set `awaits_share` on workloads that will stay pending after their restart delay: True if the minimum
    request exceeds the rest of the project's fair share.

    The scheduler does not evaluate these workloads during the delay, so the project's last queue status is
    used.
    """
    delayed = [workload for workload in workloads if waits_after_delay(workload)]
    if not delayed:
        return
    statuses = QueueStatus.objects.filter(project__in={workload.project_id for workload in delayed})
    free = {
        (project, pool): share[0] - allocated[0] - reserved[0]
        for project, pool, share, allocated, reserved in statuses.values_list(
            "project_id", "pool__name", "share", "allocated", "reserved"
        )
    }
    for workload in delayed:
        remaining = free.get((workload.project_id, (workload.explanation or {}).get("pool") or ""))
        setattr(workload, AWAITS_SHARE, remaining is not None and workload.gpu_milli_min > remaining)


def _backoff_phrase(message: str) -> str:
    """Reword the message of a restart delay, with a counted cause first: "After 1 eviction, can start from".

    Other messages are returned unchanged.
    """
    if counted := COUNTED_BACKOFF.match(message):
        return f"After {counted['causes']}, {CAN_START[0].lower()}{CAN_START[1:]}{counted['end']}"
    return BACKOFF_END.sub(CAN_START, message)


def _with_wait_after_delay(workload: Workload, text: str) -> str:
    """Append the wait that follows the restart delay, if any."""
    awaited = awaited_after_delay(workload)
    return f"{text.removesuffix('.')}, then waits {awaited}" if awaited else text


def awaited_after_delay(workload: Workload) -> str:
    """Return "for fair share" or "in the queue" if the workload is not expected to start when its restart
    delay ends, and otherwise an empty string.
    """
    if not waits_after_delay(workload):
        return ""
    if not hasattr(workload, AWAITS_SHARE):
        load_awaited_shares([workload])
    return "for fair share" if getattr(workload, AWAITS_SHARE, False) else "in the queue"


def _format_number(resource: str, amount: Any) -> str:
    return format_amount(resource, amount) if resource == "memory_mib" else f"{amount / MILLI:g}"
