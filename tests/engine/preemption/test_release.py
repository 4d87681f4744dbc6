"""Tests that a node is released only if its workloads fit elsewhere without losses."""

from collections import defaultdict
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given

from scheduler.engine.decide import decide
from scheduler.engine.model import Consolidation, NodeState, Pod, PodState, Pool, Reservation, Snapshot
from scheduler.engine.node_release import (
    PAYBACK,
    ReleasableNode,
    find_empty_nodes,
    find_node_to_release,
    is_pool_settled,
)
from scheduler.engine.plan import Evict, Kind, Place, Plan
from scheduler.simulator.scenario.load import load
from tests.engine.reference.clusters import clusters
from tests.engine.test_invariants import on_random_clusters
from tests.engine.world import NOON, World, role

ALL = ("n0", "n1", "n2", "n3")


def world(nodes: int = 4, **pool: Any) -> World:
    made = World(pool=Pool("default", nodes_max=8, **pool))
    for ordinal in range(nodes):
        made.node(f"n{ordinal}", 8, ordinal=ordinal)
    return made.department("d", 32).project("p", "d", 32)


def release_from(made: World, offered: tuple[str, ...] = ALL, **more: Any) -> ReleasableNode | None:
    snapshot = made.snapshot()
    return find_node_to_release(snapshot, decide(snapshot), "default", offered, **more)


def test_node_is_released_when_its_workloads_fit_elsewhere() -> None:
    made = world().running("a", "p", "n1", 6, since=900).running("b", "p", "n3", 2, since=900)
    release = release_from(made)
    assert release is not None
    assert release.node == "n3"
    (bundle,) = release.bundles
    stop, place = bundle.steps
    assert isinstance(stop, Evict)
    assert isinstance(place, Place)
    assert (stop.node, place.node, place.reserved) == ("n3", "n1", True)
    assert bundle.kind is Kind.CONSOLIDATE
    (audit,) = bundle.evictions
    assert audit.rule == "moved to release node n3: its workloads fit on other nodes"
    assert [impact.queue for impact in audit.victim] == ["p", "d"]


def test_node_with_the_least_work_to_lose_is_released_first() -> None:
    made = world().running("a", "p", "n1", 3, since=100).running("b", "p", "n2", 2, since=1000)
    made.running("c", "p", "n3", 1, since=1000)
    release = release_from(made)
    assert release is not None
    assert release.node == "n1"  # n1 loses 300 GPU-seconds; the other nodes lose 2,000 and 1,000
    assert [step.node for step in release.bundles[0].steps] == ["n1", "n2"]


def test_head_node_and_non_candidate_nodes_are_never_released() -> None:
    made = world(2).running("a", "p", "n0", 1, since=10).running("b", "p", "n1", 1, since=900)
    assert release_from(made, ("n0",)) is None
    assert release_from(made, ()) is None
    release = release_from(made)
    assert release is not None
    assert release.node == "n1"


def test_node_with_a_non_preemptible_workload_is_not_released() -> None:
    assert release_from(world().running("a", "p", "n1", 2, preemptible=False, since=900)) is None
    assert release_from(world(reclaim_min_runtime=1000).running("a", "p", "n1", 2, since=900)) is None
    assert release_from(world(preempt_min_runtime=1000).running("a", "p", "n1", 2, since=900)) is None
    assert release_from(world(preempt_min_runtime=800).running("a", "p", "n1", 2, since=900)) is not None


def test_queue_minimum_runtime_overrides_the_pool_minimum_runtime() -> None:
    made = World(pool=Pool("default", nodes_max=8, reclaim_min_runtime=1000))
    for ordinal in range(4):
        made.node(f"n{ordinal}", 8, ordinal=ordinal)
    made.department("d", 32, reclaim_min_runtime=60).project("p", "d", 32)
    assert release_from(made.running("a", "p", "n1", 2, since=900)) is not None


def test_node_with_starting_or_stopping_pods_is_not_released() -> None:
    for state in (PodState.STARTING, PodState.STOPPING, PodState.STUCK):
        assert release_from(world().running("a", "p", "n1", 2, since=900, state=state)) is None


def test_node_is_not_released_if_moving_its_pods_loses_too_much_work() -> None:
    long = world().running("a", "p", "n1", 8, since=PAYBACK + 1)
    assert release_from(long) is None
    assert release_from(world().running("a", "p", "n1", 8, since=PAYBACK)) is not None
    saved = world().running("a", "p", "n1", 8, since=9 * PAYBACK, last_checkpoint=NOON - 60)
    assert release_from(saved) is not None


def test_moving_one_replica_counts_the_lost_work_of_the_whole_gang() -> None:
    # One replica moves, and all four replicas lose their work.
    made = world().running("gang", "p", "n1 n1 n1 n2", 2, since=PAYBACK)
    assert release_from(made, ("n2",)) is not None
    made = world().running("gang", "p", "n1 n1 n1 n2", 2, since=PAYBACK + 60)
    assert release_from(made, ("n2",)) is None


def test_no_node_is_released_while_a_workload_waits_for_capacity() -> None:
    made = world().running("a", "p", "n1", 2, since=900).running("b", "p", "n2", 2, since=900)
    made.queued("big", "p", 4, 8)
    assert release_from(made) is None
    assert find_empty_nodes(made.snapshot(), made.decide(), "default", ALL, 8) == ()


def test_suspended_workload_does_not_block_node_release() -> None:
    made = world().running("a", "p", "n1", 2, since=900)
    made.queued("paused", "p", 1, 8, suspended=True)
    release = release_from(made)
    assert release is not None
    assert release.node == "n1"


def test_no_node_is_released_while_the_plan_starts_a_workload() -> None:
    made = world().running("a", "p", "n1", 2, since=900).queued("new", "p", 1, 1)
    assert not is_pool_settled(made.decide(), "default")
    assert release_from(made) is None


def test_node_is_not_released_when_its_workloads_do_not_fit_elsewhere() -> None:
    made = world(3).running("a", "p", "n0", 7, since=900).running("b", "p", "n1", 5, since=900)
    made.running("c", "p", "n2", 4, since=900)
    assert release_from(made) is None


def test_last_node_that_matches_a_node_selector_is_not_released() -> None:
    made = world().node("n4", 8, ordinal=4, labels={"disk": "fast"})
    made.running("a", "p", "n4", 2, since=900, on_role={"node_selector": {"disk": "fast"}})
    assert release_from(made, ("n4",)) is None


def test_node_release_respects_spread_constraints() -> None:
    made = world(2).running("a", "p", "n0 n1", 1, since=900, on_role={"spread_per_node": 1})
    assert release_from(made) is None
    made = world(3).running("a", "p", "n0 n1", 1, since=900, on_role={"spread_per_node": 1})
    release = release_from(made)
    assert release is not None
    assert [step.node for step in release.bundles[0].steps] == ["n1", "n2"]


def test_node_release_moves_elastic_replicas_with_their_gang() -> None:
    made = world().running("a", "p", "n0 n1 n1", 2, least=1, up_to=3, since=900)
    release = release_from(made)
    assert release is not None
    assert [step.node for step in release.bundles[0].steps] == ["n1", "n1", "n0", "n0"]
    made = world(2).running("a", "p", "n0 n1 n1", 2, least=1, up_to=3, since=900)
    made.running("b", "p", "n0", 4, since=900)
    assert release_from(made) is None


def test_reserved_node_is_not_released() -> None:
    made = world().running("a", "p", "n1", 2, since=900).queued("b", "p", 1, 8)
    made.reservations.append(Reservation("b", "worker", 0, "n3", tuple(range(8))))
    snapshot = replace(made.snapshot(), workloads=(made.workloads[0],))
    assert "n3" not in find_empty_nodes(snapshot, decide(snapshot), "default", ALL, 8)


def test_empty_nodes_are_released_newest_first_up_to_the_limit() -> None:
    made = world().running("a", "p", "n1", 2, since=900)
    snapshot, plan = made.snapshot(), made.decide()
    assert find_empty_nodes(snapshot, plan, "default", ALL, 8) == ("n3", "n2")
    assert find_empty_nodes(snapshot, plan, "default", ALL, 1) == ("n3",)
    assert find_empty_nodes(snapshot, plan, "default", ("n0", "n1"), 8) == ()
    assert find_empty_nodes(snapshot, plan, "default", ALL, 0) == ()


def test_node_release_ignores_other_pools() -> None:
    made = world(2)
    made.pools.append(Pool("other"))
    made.node("o0", 8, pool="other", ordinal=0)
    made.running("a", "p", "n0", 7, since=900).running(
        "b", "p", "n1", 2, since=900, pools=("default", "other")
    )
    assert release_from(made) is None


def test_node_release_moves_pods_of_cpu_only_roles() -> None:
    made = World(pool=Pool("default", nodes_max=8))
    for ordinal in range(3):
        made.node(f"n{ordinal}", 0, cpu=8, ordinal=ordinal)
    made.department("d", 0).project("p", "d", 0)
    made.running("a", "p", "n1", 0, cpu=3, since=900).running("b", "p", "n2", 0, cpu=2, since=900)
    release = release_from(made)
    assert release is not None
    assert release.node == "n2"
    assert release_from(made, payback=100) is None


@pytest.mark.parametrize("enabled", [True, False])
def test_node_release_is_deterministic(enabled: bool) -> None:
    made = world(consolidation=Consolidation(enabled)).running("a", "p", "n1", 2, since=900)
    made.queued("two roles", "p", roles=(role("x"), role("y")), suspended=True)
    assert release_from(made) == release_from(made)


@on_random_clusters(20)
@given(document=clusters())
def test_node_release_does_not_cause_further_evictions_or_rejections(document: dict[str, Any]) -> None:
    snapshot = _without_pending(load(document).snapshot)
    for pool in snapshot.pools:
        offered = [node.name for node in snapshot.nodes if node.pool == pool.name]
        plan = decide(snapshot)
        release = find_node_to_release(snapshot, plan, pool.name, offered)
        if release is not None:
            _check_release(snapshot, plan, release)
        empty = find_empty_nodes(snapshot, plan, pool.name, offered, 99)
        if empty:
            after = decide(_with_pods_moved(snapshot, set(empty), {}))
            assert [b for b in after.bundles if b.evictions] == [b for b in plan.bundles if b.evictions]
            assert {r.workload for r in after.rejections} == {r.workload for r in plan.rejections}


def _without_pending(snapshot: Snapshot) -> Snapshot:
    """Return the snapshot with only running workloads, as in a pool with surplus nodes."""
    ordinals = {node.name: number for number, node in enumerate(snapshot.nodes)}
    return replace(
        snapshot,
        nodes=tuple(replace(n, state=NodeState.READY, ordinal=ordinals[n.name]) for n in snapshot.nodes),
        reservations=(),
        workloads=tuple(
            replace(w, stale_since=None, suspended=False, pods=tuple(map(_running, w.pods)))
            for w in snapshot.workloads
            if w.pods
        ),
    )


def _running(pod: Pod) -> Pod:
    return pod if pod.state is PodState.COMPLETED else replace(pod, state=PodState.RUNNING)


def _check_release(snapshot: Snapshot, plan: Plan, release: ReleasableNode) -> None:
    places: dict[tuple[str, str, int], Place] = {}
    stopped = set()
    for bundle in release.bundles:
        for step in bundle.steps:
            key = step.workload, step.role, step.index
            if isinstance(step, Place):
                places[key] = step
            else:
                assert step.node == release.node
                stopped.add(key)
    assert stopped == places.keys()
    workloads = {workload.name: workload for workload in snapshot.workloads}
    assert all(workloads[name].preemptible for name, _, _ in stopped)
    assert all(place.node != release.node for place in places.values())
    after = _with_pods_moved(snapshot, {release.node}, places)
    _assert_not_oversold(after)
    then = decide(after)
    assert not [bundle for bundle in then.bundles if bundle.pool == release.pool]
    assert {rejection.workload for rejection in then.rejections} <= {
        rejection.workload for rejection in plan.rejections
    }


def _with_pods_moved(
    snapshot: Snapshot, released: set[str], places: dict[tuple[str, str, int], Place]
) -> Snapshot:
    def at(name: str, pod: Pod) -> Pod:
        place = places.get((name, pod.role, pod.index))
        if place is None or pod.state is PodState.COMPLETED:
            return pod
        return replace(pod, node=place.node, devices=place.devices, milli=place.milli)

    return replace(
        snapshot,
        nodes=tuple(node for node in snapshot.nodes if node.name not in released),
        workloads=tuple(
            replace(w, pods=tuple(at(w.name, pod) for pod in w.pods)) for w in snapshot.workloads
        ),
    )


def _assert_not_oversold(snapshot: Snapshot) -> None:
    held: dict[tuple[str, int], int] = defaultdict(int)
    nodes = {node.name: node for node in snapshot.nodes}
    for workload in snapshot.workloads:
        for pod in workload.pods:
            if pod.state is not PodState.COMPLETED:
                for device in pod.devices:
                    assert device < nodes[pod.node].gpus
                    held[pod.node, device] += pod.milli
    assert all(milli <= 1000 for milli in held.values())
