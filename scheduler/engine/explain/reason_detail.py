"""Describe in one clause the numbers behind a pending reason."""

from collections.abc import Sequence

from berth.core.values.amounts import MILLI
from berth.core.wording.words import format_amount, format_count
from scheduler.engine.explain.reasons import convert_units, free_phrase
from scheduler.engine.plan import Numbers, Reason
from scheduler.engine.request_bounds import NON_PREEMPTIBLE_REASONS

# Reasons that concern a queue's quota, limit or fair share.
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

    Return "" if any of the numbers is unknown. `blockers` contains pairs of a reason and its numbers.
    """
    if not blockers:
        return ""
    reason, numbers = blockers[0]
    if reason == Reason.WAITING_FOR_CAPACITY:
        return _shortage_clause(numbers)
    if reason not in BOUNDED:
        return ""
    return _excess_clause(reason, numbers)


def reason_sentence(blockers: Sequence[tuple[str, Numbers]]) -> str:
    """Return the first reason and its numbers as full sentences, or "" if `reason_detail` suffices.

    For example "Needs 2 GPUs, 1.25 are free. vision would have 14 GPUs, more than its fair share of 11, so
    only free capacity can be used."
    """
    reason, numbers = blockers[0] if blockers else ("", {})
    if reason not in BOUNDED or (amounts := _excess_amounts(numbers)) is None:
        return ""
    bound = convert_units("bound", numbers["bound"], numbers)
    entire = " for non-preemptible workloads" if reason in NON_PREEMPTIBLE_REASONS else ""
    excess = f"{numbers['queue']} would have {amounts[0]}{_pool_suffix(numbers)}{entire}"
    excess += f", more than its {bound_name(reason, numbers)} of {bound}"
    if reason != Reason.WOULD_EXCEED_FAIR_SHARE:
        return f"{excess}."
    until_turn = " until decayed usage makes it the queue's turn" if numbers.get("takes_turns") else ""
    following, shortage = blockers[1] if len(blockers) > 1 else ("", {})
    needed = _shortage_clause(shortage) if following == Reason.WAITING_FOR_CAPACITY else ""
    needed = f"{needed[:1].upper()}{needed[1:]}. " if needed else ""
    return f"{needed}{excess}, so only free capacity can be used{until_turn}."


def _shortage_clause(numbers: Numbers) -> str:
    if numbers.get("resource") in ("pods", "replicas") or not _are_integers(numbers, "requested", "free"):
        return ""
    needed = format_amount(str(numbers.get("resource", "gpu")), int(numbers["requested"] or 0))
    return f"needs {needed}, {free_phrase(numbers, 'free')} free{_pool_suffix(numbers)}"


def _pool_suffix(numbers: Numbers) -> str:
    """Return " in POOL" if the numbers are about a single pool, else ""."""
    return f" in {numbers['pool']}" if "pool" in numbers and "group" not in numbers else ""


def _excess_clause(reason: str, numbers: Numbers) -> str:
    """Return a clause such as "vision would have 24 of 16 GPUs", or "" if an amount is unknown."""
    if (amounts := _excess_amounts(numbers)) is None:
        return ""
    bound = amounts[1]
    is_quota = reason == Reason.WOULD_EXCEED_FAIR_SHARE and bound_name(reason, numbers) == "quota"
    entire = " for non-preemptible workloads" if reason in NON_PREEMPTIBLE_REASONS else ""
    total = convert_units("requested", _amount_after_start(numbers), numbers)
    return f"{numbers['queue']} would have {total} of {'its quota of ' if is_quota else ''}{bound}{entire}"


def _excess_amounts(numbers: Numbers) -> tuple[str, str] | None:
    """Return the queue's allocation including this request, and the exceeded limit, with units.

    Return None if either is unknown.
    """
    if not _are_integers(numbers, "requested", "allocated", "bound") or "queue" not in numbers:
        return None
    if "behind" in numbers:  # the message names the workload for which quota is held
        return None
    resource = str(numbers.get("resource", "gpu"))
    return _format_bound(resource, _amount_after_start(numbers)), _format_bound(
        resource, int(numbers["bound"] or 0)
    )


def _amount_after_start(numbers: Numbers) -> int:
    return int(numbers["allocated"] or 0) + int(numbers["requested"] or 0)


def bound_name(reason: str, numbers: Numbers) -> str:
    """Return what the numbers of a bounded reason exceed: "quota", "limit" or "fair share"."""
    if reason in NON_PREEMPTIBLE_REASONS:
        return "quota"
    if reason != Reason.WOULD_EXCEED_FAIR_SHARE:
        return "limit"
    share, quota = numbers.get("share"), numbers.get("quota")
    return "quota" if isinstance(share, int) and isinstance(quota, int) and quota > share else "fair share"


def _format_bound(resource: str, value: int) -> str:
    return (
        format_count(value / MILLI, resource.upper())
        if resource in ("gpu", "cpu")
        else format_amount(resource, value)
    )


def _are_integers(numbers: Numbers, *keys: str) -> bool:
    return all(isinstance(numbers.get(key), int) for key in keys)
