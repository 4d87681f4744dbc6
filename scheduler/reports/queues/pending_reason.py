"""Label and detail of a workload's pending reason, in the same words on all pages."""

import re
from collections.abc import Sequence
from typing import NamedTuple

from django.utils import timezone
from django.utils.dateparse import parse_datetime

from berth.core.wording.words import token_to_words
from projects.models import Phase, Workload
from projects.pending_reasons import DELAY_MARGIN
from scheduler.engine.plan import Reason
from scheduler.models import QueueStatus

AWAITS_SHARE = "awaits_share"  # attribute that `load_awaited_shares` sets
FOR_FAIR_SHARE = "for fair share"  # what a workload waits for after its restart delay
RESTART_DELAY = "Restart delay "  # beginning of a restart delay's message
# Matches a restart delay whose cause is not just a number of evictions or failed runs.
REFUSAL = re.compile(r"^Restart delay until [^,]+, after (?!\d+ )(?P<refusal>.+)$", re.DOTALL)


class ReasonText(NamedTuple):
    """Why a workload is pending. `label` is used in counts and filters, and `detail` states the numbers."""

    label: str
    detail: str

    @property
    def detail_after_label(self) -> str:
        """Return the detail as it follows the label on the same line, for example ": needs 6 GPUs, none are
        free".
        """
        separator = " " if self.detail.startswith(("until ", "ended ", "after the ")) else ": "
        return self.detail and separator + self.detail

    def __str__(self) -> str:
        return self.label + self.detail_after_label


def pending_reason(workload: Workload) -> ReasonText:
    """Return why a workload is pending, for example ("Would exceed fair share", "vision would have 12 of 11
    GPUs").
    """
    if workload.phase == Phase.RESERVED:
        return ReasonText("Reserved", "")
    label = token_to_words(workload.reason) or "Not evaluated yet"
    if workload.reason != Reason.BACKOFF or workload.backoff_until is None:
        return ReasonText(label, message_to_clause(workload.message))
    has_ended, awaited = has_delay_ended(workload), describe_wait_after_delay(workload)
    detail = f"{'ended' if has_ended else 'until'} {workload.backoff_until:%Y-%m-%d %H:%M:%S} UTC"
    if awaited == FOR_FAIR_SHARE:  # this wait lasts longer than the delay
        label = token_to_words(Reason.WOULD_EXCEED_FAIR_SHARE)
        detail = f"after the restart delay {'that ' if has_ended else ''}{detail}"
    elif awaited:
        detail += f", {'now' if has_ended else 'then'} waits {awaited}"
    if cause := REFUSAL.match(workload.message):
        detail += f"; {cause['refusal'].removesuffix('.')}"
    return ReasonText(label, detail)


def has_delay_ended(workload: Workload) -> bool:
    """Return whether the restart delay has ended but no cycle has evaluated the workload since."""
    until = workload.backoff_until
    return workload.reason == Reason.BACKOFF and until is not None and until <= timezone.now()


def message_to_clause(message: str) -> str:
    """Turn a message into a clause by removing the full stop and the initial capital.

    Messages with several sentences keep their full stop.
    """
    clause = message if ". " in message else message.removesuffix(".")
    return clause if clause[1:2].isupper() else clause[:1].lower() + clause[1:]


def load_awaited_shares(workloads: Sequence[Workload]) -> None:
    """Set `awaits_share` on each workload that will still be pending after its restart delay.

    The value is True if the workload's minimum GPUs exceed what is left of its project's fair share.
    """
    delayed = [workload for workload in workloads if will_wait_after_delay(workload)]
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


def describe_wait_after_delay(workload: Workload) -> str:
    """Return what the workload will wait for after its restart delay.

    The result is "for fair share", "in the queue", or "" if the workload will not stay pending.
    """
    if not will_wait_after_delay(workload):
        return ""
    if not hasattr(workload, AWAITS_SHARE):
        load_awaited_shares([workload])
    return FOR_FAIR_SHARE if getattr(workload, AWAITS_SHARE, False) else "in the queue"


def will_wait_after_delay(workload: Workload) -> bool:
    """Return whether the workload is expected to start later than its restart delay alone would allow."""
    starts = parse_datetime((workload.explanation or {}).get("expected_start") or "")
    until = workload.backoff_until
    if workload.reason != Reason.BACKOFF or until is None or starts is None:
        return False
    return starts - until >= DELAY_MARGIN
