"""Format pending reasons briefly, with the numbers first."""

import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from django.utils.dateparse import parse_datetime

from berth.core.amounts import MILLI
from berth.core.words import format_amount
from projects.models import Workload
from scheduler.engine.plan import Reason

# reasons about a queue's limit, quota or fair share, with the name of that amount
BOUNDED: Mapping[Reason, str] = {
    Reason.WOULD_EXCEED_FAIR_SHARE: "fair share",
    Reason.PROJECT_LIMIT: "limit",
    Reason.DEPARTMENT_LIMIT: "limit",
    Reason.NON_PREEMPTIBLE_OVER_QUOTA: "quota",
    Reason.DEPARTMENT_OVERSOLD: "quota",
}
DELAY_MARGIN = timedelta(minutes=1)  # between the end of a restart delay and a start that it alone delays
BACKOFF_END = re.compile(r"^Can start again at ")  # the reason's name already states this


def brief_reason(workload: Workload) -> str:
    """Return a short form of the first pending reason for use in lists.

    For example: "2 requested, 12 allocated of fair share 11". The queue is named unless it is the workload's
    project. For held quota, and for reasons that do not concern a queue's bounds, the text is the workload's
    message.
    """
    blockers = (workload.explanation or {}).get("blockers") or [{}]
    numbers = blockers[0].get("numbers") or {}
    if (
        workload.reason not in BOUNDED
        or blockers[0].get("reason") != workload.reason
        or numbers.get("bound") is None
        or "behind" in numbers
    ):
        return _with_wait_after_delay(workload, BACKOFF_END.sub("until ", workload.message))
    resource, queue = str(numbers["resource"]), numbers["queue"]
    keys = ("allocated", "requested", "bound")
    allocated, requested, most = (_format_number(resource, numbers[key]) for key in keys)
    kind = "CPUs " if resource == "cpu" else ""
    where = "" if queue == workload.project.name else f" in {queue}"
    bound = BOUNDED[Reason(workload.reason)]
    return f"{requested} {kind}requested, {allocated} allocated of {bound} {most}{where}"


def _with_wait_after_delay(workload: Workload, text: str) -> str:
    """Add that the workload waits in the queue after its restart delay, if it is expected to start later."""
    starts = parse_datetime((workload.explanation or {}).get("expected_start") or "")
    if workload.reason != Reason.BACKOFF or workload.backoff_until is None or starts is None:
        return text
    if starts - workload.backoff_until < DELAY_MARGIN:
        return text
    return f"{text.removesuffix('.')}, then waits in the queue"


def _format_number(resource: str, amount: Any) -> str:
    return format_amount(resource, amount) if resource == "memory_mib" else f"{amount / MILLI:g}"
