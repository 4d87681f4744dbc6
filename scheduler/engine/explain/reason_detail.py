"""Describe in one clause the numbers behind a pending reason."""

from collections.abc import Sequence

from berth.core.values.amounts import MILLI
from berth.core.wording.words import format_amount, format_count
from scheduler.engine.entire_bounds import NON_PREEMPTIBLE_REASONS
from scheduler.engine.explain.reasons import convert_units, free_phrase
from scheduler.engine.plan import Numbers, Reason

# Reasons that concern a bound of a queue.
BOUNDED = frozenset(
    (
        Reason.WOULD_EXCEED_FAIR_SHARE,
        Reason.PROJECT_LIMIT,
        Reason.DEPARTMENT_LIMIT,
        *NON_PREEMPTIBLE_REASONS,
    )
)


def reason_detail(blockers: Sequence[tuple[str, Numbers]]) -> str:
    """Return a clause with the numbers behind the first reason, such as "needs 8 GPUs, 1.25 are free" or
    "vision would have 24 of 16 GPUs".

    Return "" if the numbers are not all known. Each blocker is a reason with its numbers. A workload above
    its fair share may still use free capacity. If there is too little of it, the clause ends with the free
    amount.
    """
    if not blockers:
        return ""
    reason, numbers = blockers[0]
    if reason == Reason.WAITING_FOR_CAPACITY:
        return _shortage_clause(numbers)
    if reason not in BOUNDED:
        return ""
    excess = _excess_clause(reason, numbers)
    if not excess or reason != Reason.WOULD_EXCEED_FAIR_SHARE or len(blockers) == 1:
        return excess
    following, shortage = blockers[1]
    if following != Reason.WAITING_FOR_CAPACITY or not (needed := _shortage_clause(shortage)):
        return excess
    is_same = shortage.get("resource") == numbers.get("resource")
    return f"{excess}, {free_phrase(shortage, 'free')} free" if is_same else f"{excess}; {needed}"


def _shortage_clause(numbers: Numbers) -> str:
    if numbers.get("resource") in ("pods", "replicas") or not _are_integers(numbers, "requested", "free"):
        return ""
    needed = format_amount(str(numbers.get("resource", "gpu")), int(numbers["requested"] or 0))
    return f"needs {needed}, {free_phrase(numbers, 'free')} free"


def _excess_clause(reason: str, numbers: Numbers) -> str:
    """Return a clause with the amount that the queue would have, and its bound.

    The bound is the larger of quota and fair share. If it is the quota, the clause says so.
    """
    if not _are_integers(numbers, "requested", "allocated", "bound") or "queue" not in numbers:
        return ""
    if "behind" in numbers:  # the message names the workload for which the rest is held
        return ""
    total = int(numbers["allocated"] or 0) + int(numbers["requested"] or 0)
    bound = _format_bound(str(numbers.get("resource", "gpu")), int(numbers["bound"] or 0))
    share, quota = numbers.get("share"), numbers.get("quota")
    if reason == Reason.WOULD_EXCEED_FAIR_SHARE and isinstance(share, int) and isinstance(quota, int):
        bound = f"its quota of {bound}" if quota > share else bound
    entire = " for non-preemptible workloads" if reason in NON_PREEMPTIBLE_REASONS else ""
    return f"{numbers['queue']} would have {convert_units('requested', total, numbers)} of {bound}{entire}"


def _format_bound(resource: str, value: int) -> str:
    return (
        format_count(value / MILLI, resource.upper())
        if resource in ("gpu", "cpu")
        else format_amount(resource, value)
    )


def _are_integers(numbers: Numbers, *keys: str) -> bool:
    return all(isinstance(numbers.get(key), int) for key in keys)
