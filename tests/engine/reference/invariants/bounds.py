"""Invariants for limits and quotas.

Each invariant yields one sentence per violation and uses none of the engine's own logic.
"""

from collections.abc import Iterator

from berth.core.values.amounts import RESOURCES, Amounts, Bounds
from scheduler.engine.model import (
    Snapshot,
)
from scheduler.engine.plan import Bundle, Plan
from tests.engine.reference.replay import (
    Cluster,
    collect_bounds,
    placed,
    replay_steps,
)

Broken = Iterator[str]


def limits_hold_at_every_level(snapshot: Snapshot, plan: Plan) -> Broken:
    limits = collect_bounds(snapshot, lambda pool_quota: pool_quota.limit)
    quotas = collect_bounds(snapshot, lambda pool_quota: None if pool_quota.over_quota else pool_quota.quota)
    for bundle, before, after in replay_steps(snapshot, plan):
        for queue in _served_queues(bundle, after):
            for what, bounds in (("limit", limits), ("quota without permission to borrow", quotas)):
                bound = bounds.get((bundle.pool, queue))
                was, now = before.allocated(bundle.pool, queue), after.allocated(bundle.pool, queue)
                for kind in _kinds_grown_beyond(bound, was, now):
                    yield f"{queue} grows beyond its {what} in {kind}: {was} to {now}, bound {bound}"


def non_preemptible_workloads_stay_within_quota(snapshot: Snapshot, plan: Plan) -> Broken:
    quotas = collect_bounds(snapshot, lambda pool_quota: pool_quota.quota)
    for bundle, before, after in replay_steps(snapshot, plan):
        if after.workloads[bundle.workload].preemptible:
            continue
        for queue in _served_queues(bundle, after):
            was = before.allocated(bundle.pool, queue, firm_only=True)
            now = after.allocated(bundle.pool, queue, firm_only=True)
            for kind in _kinds_grown_beyond(
                quotas.get((bundle.pool, queue), Bounds(0, None, None)), was, now
            ):
                yield f"non-preemptible {bundle.workload} takes {queue} over its quota in {kind}: {now}"


def _served_queues(bundle: Bundle, cluster: Cluster) -> list[str]:
    return sorted({queue for name in placed(bundle) for queue in cluster.path(name)})


def _kinds_grown_beyond(bound: Bounds | None, was: Amounts, now: Amounts) -> Iterator[str]:
    if bound is None:
        return
    for kind, most, a, b in zip(RESOURCES, bound, was, now, strict=True):
        if most is not None and b > most and b > a:
            yield kind


INVARIANTS = (
    limits_hold_at_every_level,
    non_preemptible_workloads_stay_within_quota,
)
