"""Tests that blocker numbers match a plain calculation and that each blocker really prevents a start.

`BERTH_RANDOM_CLUSTERS=20000` sets the number of clusters (default: a few dozen).
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from hypothesis import given

from scheduler.engine.decide import decide
from scheduler.engine.model import Snapshot
from scheduler.engine.plan import Plan, Rejection
from scheduler.simulator import load
from scheduler.simulator.simulation import SimulatedCluster
from tests.engine.reference.blockers import wrong_numbers
from tests.engine.reference.clusters import clusters
from tests.engine.reference.relief import without
from tests.engine.test_invariants import on_random_clusters

MAX_PLANS = 3


def plans(document: dict[str, Any]) -> Iterator[tuple[Snapshot, Plan]]:
    """Yield snapshots and their plans until a plan has no decisions."""
    world = SimulatedCluster(load(document).snapshot)
    for _ in range(MAX_PLANS):
        snapshot = world.snapshot()
        plan = decide(snapshot)
        yield snapshot, plan
        if not plan.bundles:
            return
        world.apply_plan(plan)


@on_random_clusters(4)
@given(document=clusters(quiet=True, time_based=True))
def test_blocker_numbers_equal_a_reference_calculation_in_time_based_pools(document: dict[str, Any]) -> None:
    assert [wrong for snapshot, plan in plans(document) for wrong in wrong_numbers(snapshot, plan)] == []


@on_random_clusters(7)
@given(document=clusters(quiet=True))
def test_blocker_numbers_equal_a_reference_calculation(document: dict[str, Any]) -> None:
    assert [wrong for snapshot, plan in plans(document) for wrong in wrong_numbers(snapshot, plan)] == []


@on_random_clusters(7)
@given(document=clusters(quiet=True))
def test_removing_the_first_blocker_starts_the_workload_or_reveals_the_next(document: dict[str, Any]) -> None:
    *_, (snapshot, plan) = plans(document)
    if not plan.bundles:
        assert list(unnecessary_blockers(snapshot, plan)) == []


def unnecessary_blockers(snapshot: Snapshot, plan: Plan) -> Iterator[str]:
    workloads = {workload.name: workload for workload in snapshot.workloads}
    for name in [rejection.workload for rejection in plan.rejections]:
        # Other pending workloads could take what the relief provides.
        alone = replace(snapshot, workloads=tuple(w for w in snapshot.workloads if w.pods or w.name == name))
        rejection = _rejection(alone, name)
        if rejection is None:
            continue
        first, *rest = rejection.blockers
        relieved = without(alone, workloads[name], rejection.pool, first)
        # If workloads scale up or move into the relief, the cluster is no longer comparable.
        after = _rejection(relieved, name) if relieved and not decide(relieved).bundles else None
        if after is None or after.pool != rejection.pool:
            continue
        now = after.blockers[0]
        same_reason = now.reason is first.reason and now.numbers != first.numbers  # another resource or queue
        if now.reason not in {blocker.reason for blocker in rest} and not same_reason:
            yield (
                f"{name}: without {[b.message for b in rejection.blockers]} it still waits: "
                f"{[b.message for b in after.blockers]}"
            )


def _rejection(snapshot: Snapshot, workload: str) -> Rejection | None:
    return next(
        (rejection for rejection in decide(snapshot).rejections if rejection.workload == workload), None
    )
