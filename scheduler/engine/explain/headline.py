"""The plain fact behind a pending workload: what it needs, and how much of that is left."""

from collections.abc import Mapping, Sequence

from berth.core.wording.words import format_amount
from scheduler.engine.entire_bounds import NON_PREEMPTIBLE_REASONS
from scheduler.engine.explain.reasons import convert_units, free_phrase
from scheduler.engine.plan import Numbers, Reason

# Reasons that concern a bound of a queue, with the name of that bound.
BOUNDED: Mapping[str, str] = {
    Reason.WOULD_EXCEED_FAIR_SHARE: "fair share",
    Reason.PROJECT_LIMIT: "limit",
    Reason.DEPARTMENT_LIMIT: "limit",
    **dict.fromkeys(NON_PREEMPTIBLE_REASONS, "quota"),
}


def headline(blockers: Sequence[tuple[str, Numbers]]) -> str:
    """Return the fact that keeps a workload pending, without a full stop, or "" if no number states it.

    For example "Needs 6 GPUs, 1.25 are free" or "Needs 12 GPUs, 4 are left of vision's limit (16)". Each
    blocker is a reason with its numbers. A workload above its fair share may use free capacity, so what is
    free is the fact if too little is.
    """
    if not blockers:
        return ""
    reason, numbers = blockers[0]
    if reason == Reason.WAITING_FOR_CAPACITY:
        return _shortage(numbers)
    if reason not in BOUNDED:
        return ""
    if reason == Reason.WOULD_EXCEED_FAIR_SHARE and len(blockers) > 1:
        following, shortage = blockers[1]
        if following == Reason.WAITING_FOR_CAPACITY and (fact := _shortage(shortage)):
            return fact
    name = bound_name(reason, numbers)
    if reason in NON_PREEMPTIBLE_REASONS:  # the quota counts no other workloads
        name += " for non-preemptible workloads"
    return _rest_of_bound(numbers, name)


def bound_name(reason: str, numbers: Numbers) -> str:
    """Return the name of the bound that a reason concerns.

    A queue may use the larger of its quota and its fair share. In an oversold pool, that is the quota.
    """
    share, quota = numbers.get("share"), numbers.get("quota")
    if reason == Reason.WOULD_EXCEED_FAIR_SHARE and isinstance(share, int) and isinstance(quota, int):
        return "quota" if quota > share else "fair share"
    return BOUNDED[reason]


def _shortage(numbers: Numbers) -> str:
    if numbers.get("resource") in ("pods", "replicas") or not _are_integers(numbers, "requested", "free"):
        return ""
    return f"{_need(numbers)}, {free_phrase(numbers, 'free')} free"


def _rest_of_bound(numbers: Numbers, name: str) -> str:
    if not _are_integers(numbers, "requested", "allocated", "bound") or "queue" not in numbers:
        return ""
    if "behind" in numbers:  # the message names the workload for which the rest is held
        return ""
    left = {**numbers, "free": max(0, int(numbers["bound"] or 0) - int(numbers["allocated"] or 0))}
    bound = f"{numbers['queue']}'s {name} ({convert_units('bound', numbers['bound'], numbers)})"
    return f"{_need(numbers)}, {free_phrase(left, 'free')} left of {bound}"


def _need(numbers: Numbers) -> str:
    return f"Needs {format_amount(str(numbers.get('resource', 'gpu')), int(numbers['requested'] or 0))}"


def _are_integers(numbers: Numbers, *keys: str) -> bool:
    return all(isinstance(numbers.get(key), int) for key in keys)
