"""Invariants for the reasons that a plan gives.

Each invariant yields one sentence per violation and uses none of the engine's own logic.
"""

from collections import defaultdict
from collections.abc import Iterator

from scheduler.engine.model import (
    PodState,
    Snapshot,
)
from scheduler.engine.plan import UNSCHEDULABLE_REASONS, Plan
from tests.engine.reference.replay import (
    placed,
    replay_plan,
)

Broken = Iterator[str]


def every_pending_workload_has_a_reason(snapshot: Snapshot, plan: Plan) -> Broken:
    cluster = replay_plan(snapshot, plan)
    rejections = {rejection.workload: rejection for rejection in plan.rejections}
    evicted = {eviction.workload for bundle in plan.bundles for eviction in bundle.evictions}
    for workload in snapshot.workloads:
        done = workload.pods and all(pod.state is PodState.COMPLETED for pod in workload.pods)
        if cluster.is_whole(workload.name) or done or workload.name in evicted:
            continue
        if workload.name not in rejections:
            yield f"{workload.name} is pending without a rejection"
        elif not rejections[workload.name].blockers or not all(
            b.message for b in rejections[workload.name].blockers
        ):
            yield f"{workload.name} is rejected without a reason"


def rejections_are_in_queue_order(snapshot: Snapshot, plan: Plan) -> Broken:
    names = [rejection.workload for rejection in plan.rejections]
    if len(set(names)) != len(names):
        yield f"rejected twice: {names}"
    by_pool: dict[str, list[int]] = defaultdict(list)
    reserved = _reserved_workloads(snapshot, plan)
    for rejection in plan.rejections:
        if rejection.position is None:
            is_queued = rejection.workload not in reserved
            if is_queued and rejection.blockers[0].reason not in UNSCHEDULABLE_REASONS:
                yield f"{rejection.workload} has no position"
            continue
        if rejection.workload in reserved:
            yield f"{rejection.workload} has reservations and a position"
        by_pool[rejection.pool].append(rejection.position)
    for pool, positions in by_pool.items():
        if sorted(positions) != list(range(1, len(positions) + 1)):
            yield f"positions in {pool}: {positions}"


def _reserved_workloads(snapshot: Snapshot, plan: Plan) -> set[str]:
    cluster = replay_plan(snapshot, plan)
    states = {w.name: {pod.state for pod in cluster.of(w.name)} for w in snapshot.workloads}
    return {name for name, own in states.items() if own == {PodState.RESERVED}}


def started_workloads_are_not_rejected(snapshot: Snapshot, plan: Plan) -> Broken:
    cluster = replay_plan(snapshot, plan)
    started = {bundle.workload for bundle in plan.bundles if bundle.workload in placed(bundle)}
    for rejection in plan.rejections:
        if rejection.workload in started and cluster.is_whole(rejection.workload):
            yield f"{rejection.workload} is placed and rejected"


INVARIANTS = (
    every_pending_workload_has_a_reason,
    rejections_are_in_queue_order,
    started_workloads_are_not_rejected,
)
