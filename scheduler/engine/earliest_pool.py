"""Choose the pool with the earliest expected start for each pending workload that allows several pools."""

from collections.abc import Iterator
from dataclasses import replace

from scheduler.engine.explain.rejections import Rejections
from scheduler.engine.forecast import MAX_ESTIMATES, forecast_rejections
from scheduler.engine.model import Snapshot
from scheduler.engine.plan import Plan, Reason


def with_earliest_pools(snapshot: Snapshot, plan: Plan) -> Plan:
    """Return the plan with the rejection from the pool where each workload is expected to start first.

    A workload for which nodes boot is expected to start before all others. If no pool has an estimate, the
    rejection stays the same.
    """
    rejections = plan.rejections
    if not isinstance(rejections, Rejections) or not rejections.has_several_per_workload:
        return plan
    starts = dict(_known_starts(snapshot, plan, rejections))
    return replace(plan, rejections=rejections.choose(starts)) if starts else plan


def _known_starts(
    snapshot: Snapshot, plan: Plan, rejections: Rejections
) -> Iterator[tuple[tuple[str, str], int]]:
    """Yield each workload and pool with the expected start, in seconds since the epoch.

    Each pool's start assumes that workloads ahead which allow several pools start in that pool.
    """
    pools = rejections.pools_with_shared_workloads()
    estimated = (
        each
        for each in rejections.in_all_pools
        if each.pool in pools and (each.position or 0) <= MAX_ESTIMATES
    )
    for rejection, forecast in forecast_rejections(snapshot, plan, estimated):
        boots = any(blocker.reason is Reason.WAITING_FOR_SCALE_UP for blocker in rejection.blockers)
        start = snapshot.now if boots else forecast.at
        if start is not None:
            yield (rejection.workload, rejection.pool), start
