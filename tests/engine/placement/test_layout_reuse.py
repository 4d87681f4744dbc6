"""Tests that a layout from the previous cycle yields the same plans as a new layout."""

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from scheduler.engine.decide import decide, decide_with_layout
from scheduler.engine.layout.difference import MAX_LOOKAHEAD, find_differences
from scheduler.engine.layout.layout import Layout
from scheduler.engine.model import (
    Dependency,
    NodeState,
    PodState,
    Queue,
    Reservation,
    Snapshot,
    Strategy,
    Usage,
    Workload,
)
from scheduler.engine.preemption.victims.units import gang_as_victim
from scheduler.simulator import load
from scheduler.simulator.simulation import SimulatedCluster
from tests.engine.reference.clusters import clusters
from tests.engine.test_invariants import on_random_clusters
from tests.engine.world import NOON
from tests.engine.world import World as Cluster

NEW_WORKLOAD = Cluster().queued("w", "p").workloads[0]
ELAPSED_SECONDS = (0, 1, 5, 60, 4000)


def change_snapshot(draw: Any, snapshot: Snapshot, others: tuple[Workload, ...]) -> Snapshot:
    """Draw changes between two cycles: to workloads, queue usage and occasionally nodes."""
    workloads = list(snapshot.workloads)
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, max(0, len(workloads) - 1)))
        what = draw(st.integers(0, 8))
        if what == 0 and workloads:
            del workloads[at]
        elif what == 1:
            fresh = draw(st.sampled_from(others))
            if fresh.name not in {workload.name for workload in workloads}:
                workloads.insert(at, fresh)
        elif workloads:
            workloads[at] = edit_workload(workloads[at], what, snapshot.now)
    queues = snapshot.queues
    if not draw(st.integers(0, 2)):
        queues = tuple(map(with_more_usage, queues))
    nodes = snapshot.nodes
    if not draw(st.integers(0, 7)):
        cordoned = replace(nodes[0], state=NodeState.CORDONED)
        nodes = (cordoned, *nodes[1:])
    return replace(snapshot, workloads=tuple(workloads), queues=queues, nodes=nodes)


def edit_workload(workload: Workload, what: int, now: int) -> Workload:
    if what == 2:
        return replace(workload, priority=workload.priority ^ 16)
    if what == 3:
        return replace(workload, suspended=not workload.suspended)
    if what == 4:
        return replace(workload, backoff_until=now + 30)
    if what == 5:
        return replace(workload, pods=tuple(replace(p, state=PodState.COMPLETED) for p in workload.pods))
    if what == 6:
        return replace(workload, pods=tuple(replace(p, state=PodState.STOPPING) for p in workload.pods[:1]))
    if what == 7:
        return replace(workload, preemption_delay=100, submitted=now)
    return replace(workload, after=(Dependency("w0"), Dependency("w1")))


def with_more_usage(queue: Queue) -> Queue:
    return replace(
        queue,
        pool_quotas={
            pool: replace(
                pool_quota, usage=Usage((pool_quota.usage.used[0] + 7.0, 0.0, 0.0), (50.0, 1.0, 1.0))
            )
            for pool, pool_quota in queue.pool_quotas.items()
        },
    )


@on_random_clusters(7)
@given(document=st.one_of(clusters(), clusters(time_based=True)), other=clusters(), data=st.data())
def test_reused_layout_produces_the_same_plan_as_a_new_layout(document: Any, other: Any, data: Any) -> None:
    snapshot = load(document).snapshot
    if data.draw(st.booleans()):
        auto = tuple(replace(pool, node_strategy=Strategy.AUTO) for pool in snapshot.pools)
        snapshot = replace(snapshot, pools=auto)
    if data.draw(st.booleans()):
        elastic = tuple(replace(pool, nodes_max=len(snapshot.nodes) + 1) for pool in snapshot.pools)
        snapshot = replace(snapshot, pools=elastic)
    others = tuple(
        replace(w, name=f"x{w.name}", project=snapshot.queues[-1].name, pods=(), pools=("p",))
        for w in load(other).snapshot.workloads
    )
    carried: Layout | None = None
    world = SimulatedCluster(snapshot)
    unread = []
    for _ in range(4):
        before = repr(snapshot)
        plan, carried = decide_with_layout(snapshot, carried)
        if data.draw(st.booleans()):
            assert plan == decide(snapshot)
        else:
            unread.append((plan, snapshot))
        assert repr(snapshot) == before
        if data.draw(st.booleans()):
            world = SimulatedCluster(snapshot)
            world.apply_plan(plan)
            world.advance(data.draw(st.sampled_from(ELAPSED_SECONDS)))
            snapshot = world.snapshot()
        else:
            snapshot = replace(snapshot, now=snapshot.now + data.draw(st.sampled_from(ELAPSED_SECONDS)))
        snapshot = change_snapshot(data.draw, snapshot, others)
    for plan, seen in unread:  # a plan expands its rejections on first access
        assert plan == decide(seen)


def test_rolling_back_a_trial_restores_the_index_order_of_a_victims_pods() -> None:
    cluster = Cluster(n=3).department("d", quota=3).project("a", "d", 3).running("gang", "a", "n n n")
    (board,) = Layout(cluster.snapshot()).boards.values()
    gang = board.gangs["gang"]
    start = board.log_position()
    for pod in list(gang.parts[0].live.values()):
        board.remove_pod(gang, gang.parts[0], pod)
    board.rewind(start)
    assert [pod.index for _, pod in gang_as_victim(board, gang).pods] == [0, 1, 2]


NAMES = st.lists(st.integers(0, 20), unique=True, max_size=12)


@given(before=NAMES, now=NAMES, change_snapshot=st.sets(st.integers(0, 20)), anew=st.sets(st.integers(0, 20)))
def test_added_and_removed_workloads_are_detected_at_every_position(
    before: list[int], now: list[int], change_snapshot: set[int], anew: set[int]
) -> None:
    # `anew` holds the indices of workloads that are replaced with equal copies.
    workloads = {number: Cluster().queued(f"w{number}", "p").workloads[0] for number in range(21)}
    was = tuple(workloads[number] for number in before)
    are = tuple(
        replace(workloads[n], priority=7)
        if n in change_snapshot
        else replace(workloads[n])
        if n in anew
        else workloads[n]
        for n in now
    )
    removed, added = find_differences(was, are)
    assert removed.keys() == {f"w{n}" for n in before if n not in now or n in change_snapshot}
    assert added == {
        w.name: w for n, w in zip(now, are, strict=True) if n not in before or n in change_snapshot
    }


def test_long_sequences_of_removed_workloads_are_detected() -> None:
    many = tuple(replace(NEW_WORKLOAD, name=f"w{number:05}") for number in range(MAX_LOOKAHEAD + 700))
    removed, added = find_differences(many, (many[0], *many[MAX_LOOKAHEAD + 600 :]))
    assert len(removed) == MAX_LOOKAHEAD + 599
    assert not added


def test_advancing_the_layout_does_not_change_an_earlier_plan() -> None:
    cluster = Cluster(n1=1).department("d", 1).project("p", "d", 1)
    first = cluster.queued("a", "p").queued("b", "p").queued("c", "p").snapshot()
    plan, layout = decide_with_layout(first, None)
    later = replace(first, now=NOON + 1, workloads=(first.workloads[0], first.workloads[2]))
    again, _ = decide_with_layout(later, layout)
    assert [rejection.workload for rejection in plan.rejections] == ["b", "c"]
    assert [rejection.workload for rejection in again.rejections] == ["c"]


def test_backoffs_and_reservations_expire_in_a_reused_layout() -> None:
    cluster = Cluster(n1=2).department("d", 2).project("p", "d", 2)
    cluster.queued("a", "p", backoff_until=NOON + 10)
    cluster.queued("b", "p", pools=("default",))
    cluster.reservations.append(Reservation("b", "worker", 0, "n1", (1,), 1000, expires=NOON + 5))
    _, layout = decide_with_layout(cluster.snapshot(), None)
    later = replace(cluster.snapshot(), now=NOON + 11)
    plan, _ = decide_with_layout(later, layout)
    assert {bundle.workload for bundle in plan.bundles} == {"a", "b"}
    assert plan == decide(later)
