"""Pending reasons of workloads for which a pool adds nodes."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from scheduler.engine.forecast import UNKNOWN_START, Forecast
from scheduler.engine.plan import Reason, Rejection

# Reasons that no longer apply once the pool's new nodes for the workload have booted.
ENDS_WITH_BOOT = frozenset({
    Reason.WOULD_EXCEED_FAIR_SHARE, Reason.WAITING_FOR_CAPACITY, Reason.FRAGMENTED, Reason.TOPOLOGY,
    Reason.WAITING_FOR_SCALE_UP, Reason.IN_PREEMPTION_DELAY, Reason.NO_RECLAIMABLE_RESOURCES,
    Reason.VICTIMS_PROTECTED, Reason.PLACEMENT_ATTEMPTS_EXHAUSTED,
})  # fmt: skip
UNKNOWN_BOOT = Forecast(None, UNKNOWN_START[Reason.WAITING_FOR_SCALE_UP])


def list_scale_up_first(rejections: Iterable[Rejection]) -> tuple[Rejection, ...]:
    """Return the rejections.

    If the added nodes will resolve all reasons of a rejection, the scale-up reason is moved to the front.
    """
    return tuple(_move_scale_up_first(each) if _waits_for_nodes(each) else each for each in rejections)


def mark_unknown_boot_times(
    forecasts: Mapping[str, Forecast], rejections: Iterable[Rejection]
) -> Mapping[str, Forecast]:
    """Return the forecasts.

    If a workload without an expected start waits only for new nodes, its forecast says that boot times are
    unknown.
    """
    waiting = {each.workload for each in rejections if each.blockers[0].reason is Reason.WAITING_FOR_SCALE_UP}
    unknown = {name for name in waiting if name in forecasts and forecasts[name].at is None}
    return {**forecasts, **dict.fromkeys(unknown, UNKNOWN_BOOT)} if unknown else forecasts


def _move_scale_up_first(rejection: Rejection) -> Rejection:
    is_other = [(each.reason is not Reason.WAITING_FOR_SCALE_UP, each) for each in rejection.blockers]
    return replace(rejection, blockers=tuple(each for _, each in sorted(is_other, key=lambda pair: pair[0])))


def _waits_for_nodes(rejection: Rejection) -> bool:
    if rejection.blockers[0].reason is Reason.WAITING_FOR_SCALE_UP:
        return False
    reasons = {blocker.reason for blocker in rejection.blockers}
    return Reason.WAITING_FOR_SCALE_UP in reasons and reasons <= ENDS_WITH_BOOT
