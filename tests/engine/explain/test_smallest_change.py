"""Tests for the smallest change that would start a pending workload.

Each test expects one kind of change because smaller kinds are not enough.
"""

from typing import Any

import pytest

from scheduler.engine.model import (
    Consolidation,
    Dependency,
    NodeShape,
    NodeState,
    PodState,
    Pool,
    Reservation,
    Role,
    Taint,
    TopologyConstraint,
)
from scheduler.engine.smallest_change.search import Outcome, smallest_change
from scheduler.engine.smallest_change.sentences import change_sentence
from tests.engine.world import NOON, World, request, role

NONE = "No single change would start the workload now."


def sentence(world: World, name: str = "w") -> str:
    snapshot = world.snapshot()
    project = next(workload.project for workload in snapshot.workloads if workload.name == name)
    return change_sentence(smallest_change(snapshot, name), project)


def would_start(clause: str, effects: str = "") -> str:
    return f"The workload would start now if {clause}.{effects and ' ' + effects}"


def one_project(*, quota: float | None = 8, pool: Pool | None = None, **nodes: int) -> World:
    return World(pool=pool, **nodes).department("d", 8).project("p", "d", quota)


def full_node(**settings: Any) -> World:
    """Return a node full of another project's workload, which is within quota and has the same priority."""
    world = World(pool=Pool("default", **settings), n=4).department("d", 8)
    return world.project("p", "d", 4).project("other", "d", 4).running("theirs", "other", "n", 4)


# -- the owner of the workload


def test_resuming_a_suspended_workload_is_suggested() -> None:
    assert sentence(one_project(n=4).queued("w", "p", suspended=True)) == would_start("it were resumed")


def test_waiting_for_the_end_of_the_backoff_is_suggested() -> None:
    world = one_project(n=4).queued("w", "p", backoff_until=NOON + 90)
    assert sentence(world) == "The workload would start when its restart delay ends, in 90 s."


def test_waiting_for_the_end_of_the_backoff_is_not_suggested_if_the_workload_would_not_fit() -> None:
    world = one_project(n=4).queued("w", "p", gpus=8, backoff_until=NOON + 90)
    assert sentence(world) == (
        "The workload could start once resources are free if "
        "each replica of role worker requested 4 GPUs instead of 8."
    )


def test_waiting_for_the_only_unmet_dependency_is_suggested() -> None:
    world = (
        one_project(n=4).running("first", "p", "n", 4).queued("w", "p", gpus=4, after=(Dependency("first"),))
    )
    assert sentence(world) == would_start("first had completed")


def test_no_change_is_suggested_for_two_unmet_dependencies() -> None:
    world = one_project(n=4).running("first", "p", "n").running("second", "p", "n")
    assert sentence(world.queued("w", "p", after=(Dependency("first"), Dependency("second")))) == NONE


def test_waiting_for_the_preemption_delay_is_suggested_if_the_workload_can_then_reclaim() -> None:
    world = World(n=1).department("d", 1).project("p", "d", 1).project("borrower", "d", 0)
    world.running("borrows", "borrower", "n").queued("w", "p", preemption_delay=1020)
    expected = would_start("its preemption delay were over (21 s left)", "This would evict borrows.")
    assert sentence(world) == expected


def test_preemptibility_is_suggested_for_a_non_preemptible_workload_over_quota() -> None:
    world = one_project(quota=0, n=4).queued("w", "p", preemptible=False)
    assert sentence(world) == would_start("it were preemptible")


def test_another_pool_with_free_capacity_is_suggested() -> None:
    world = full_node()
    world.pools.append(Pool("spare"))
    world.node("m", 1, pool="spare")
    assert sentence(world.queued("w", "p")) == would_start("it also allowed pool spare")


def test_suggestion_drops_a_label_that_no_free_node_has() -> None:
    world = (
        full_node()
        .node("m", 1, labels={"zone": "b"})
        .queued("w", "p", on_role={"node_selector": {"zone": "a"}})
    )
    assert sentence(world) == would_start("role worker did not require label zone=a")


def test_tolerating_the_taint_of_the_only_free_node_is_suggested() -> None:
    world = full_node().node("m", 1, taints=(Taint("special"),)).queued("w", "p")
    assert sentence(world) == would_start("role worker tolerated taint special")


def test_allowing_the_gpu_model_of_the_only_free_node_is_suggested() -> None:
    world = full_node().node("m", 1, gpu_model="L4").queued("w", "p", on_role={"gpu_models": ("H100",)})
    assert sentence(world) == would_start("role worker also allowed GPU model L4")


def test_dropping_the_topology_constraint_is_suggested_if_the_gang_fits_in_two_racks() -> None:
    world = World(pool=Pool("default", topology=("rack",))).department("d", 8).project("p", "d", 8)
    world.node("a", 1, labels={"rack": "r1"}).node("b", 1, labels={"rack": "r2"})
    world.queued("w", "p", 2, topology=TopologyConstraint(required="rack"))
    assert sentence(world) == would_start("it did not have to run within one rack")


def test_smallest_sufficient_number_of_replicas_per_node_is_suggested() -> None:
    world = one_project(n=8).queued("w", "p", 3, on_role={"spread_per_node": 1})
    assert sentence(world) == would_start("3 replicas of role worker instead of 1 could run on a node")


@pytest.mark.parametrize(
    ("lowered", "clause"),
    [
        (role(min=8), "it had 5 worker replicas instead of 8"),
        (role(ask=request(7)), "each replica of role worker requested 5 GPUs instead of 7"),
        (role(ask=request(1, gpu_memory=100_000)),
         "each replica of role worker requested 72 GiB of GPU memory instead of 100,000 MiB"),
        (role(ask=request(0, cpu=12)), "each replica of role worker requested 10 CPUs instead of 12"),
        (role(ask=request(1, cpu=2, limit_cpu=16)),
         "each replica of role worker had a limit of 10 CPUs instead of 16"),
        (role(ask=request(1, memory=4096)),
         "each replica of role worker requested 3.5 GiB of memory instead of 4 GiB"),
    ],
)  # fmt: skip
def test_largest_request_that_fits_is_suggested(lowered: Role, clause: str) -> None:
    world = World().node("n", 5, cpu=10, memory=3800).department("d", 8).project("p", "d", 8)
    assert sentence(world.queued("w", "p", roles=(lowered,))) == would_start(clause)


def test_suggested_gpu_fraction_is_a_round_number() -> None:
    world = one_project(n=1).running("shares", "p", "n", 0.5).queued("w", "p", gpus=0.75)
    assert sentence(world) == would_start("each replica of role worker requested 0.5 GPUs instead of 0.75")


def test_smallest_relative_decrease_of_a_request_is_preferred() -> None:
    # Giving up three of eight replicas is a smaller decrease than giving up one of two GPUs.
    roles = (role("many", 8, ask=request(1)), role("few", 1, ask=request(2)))
    world = one_project(n=8).queued("w", "p", roles=roles)
    assert sentence(world) == would_start("it had 6 many replicas instead of 8")


def test_lowering_the_request_by_more_than_half_is_the_last_resort() -> None:
    world = World(n=2).department("d", 8).project("p", "d", 8).queued("w", "p", 40)
    assert sentence(world) == would_start("it had 2 worker replicas instead of 40")


def test_suggestion_lowers_a_request_many_times_larger_than_a_node_to_the_node_size() -> None:
    world = World().node("n", 0, cpu=4, memory=8192).department("d", 0).project("p", "d", 0)
    world.queued("w", "p", roles=(role(ask=request(0, cpu=500)),))
    assert sentence(world).endswith(" if each replica of role worker requested 4 CPUs instead of 500.")


def test_maximum_runtime_short_enough_for_held_nodes_is_suggested() -> None:
    pool = Pool("default", reservation_after=60)
    world = World(pool=pool, n=4).department("d", 4).project("p", "d", 4)
    world.running("runs", "p", "n", 2, max_runtime=3600 + 500, preemptible=False)
    world.queued("big", "p", gpus=4, priority=60).queued("w", "p", gpus=2)
    assert sentence(world) == would_start("its maximum runtime were 8m20s")


def test_ending_the_smallest_and_newest_sufficient_workload_is_suggested() -> None:
    world = one_project(n=8)
    for name, gpus, since in (("tiny", 1, 10), ("old", 2, 900), ("young", 2, 100), ("large", 3, 50)):
        world.running(name, "p", "n", gpus, since=since)
    assert sentence(world.queued("w", "p", gpus=2)) == would_start("young ended")


def test_smaller_request_that_needs_no_evictions_is_an_alternative() -> None:
    world = one_project(n=8).running("low", "p", "n", 2, priority=10).queued("w", "p", 6)
    world.running("fixed", "p", "n", 4, priority=200, preemptible=False)
    alternative = "Without evictions, it would start now if it had 2 worker replicas instead of 6."
    expected = would_start("it had 4 worker replicas instead of 6", f"This would evict low. {alternative}")
    assert sentence(world) == expected


def test_lowest_sufficient_priority_for_preemption_is_suggested() -> None:
    world = one_project(n=2).running("a", "p", "n", priority=60).running("b", "p", "n", priority=70)
    expected = would_start("its priority were 71 instead of 50", "This would evict a and b.")
    assert sentence(world.queued("w", "p", gpus=2)) == expected


def test_non_preemptible_priority_is_not_suggested_for_a_preemptible_workload() -> None:
    world = one_project(n=2).running("a", "p", "n", priority=99).running("b", "p", "n", priority=99)
    assert "priority" not in sentence(world.queued("w", "p", gpus=2))


# -- admins of the department or the platform


def test_smallest_sufficient_project_limit_is_suggested() -> None:
    world = World(n=8).department("d", 8).project("p", "d", 8, limit=0.5).queued("w", "p")
    assert sentence(world) == would_start("project p had a limit of 1 GPU instead of 0.5")


def test_suggested_limit_leaves_room_for_workloads_ahead_in_the_queue() -> None:
    world = World(n=8).department("d", 8).project("p", "d", 8, limit=1)
    world.running("one", "p", "n", 1, preemptible=False).queued("ahead", "p", preemptible=False)
    clause = "project p had a limit of 3 GPUs instead of 1"
    assert sentence(world.queued("w", "p", preemptible=False)) == would_start(clause)


def test_smallest_sufficient_department_limit_is_suggested() -> None:
    world = World(n=8).department("d", 8, limit=4).project("p", "d", 4).project("other", "d", 4)
    world.running("theirs", "other", "n", 4, preemptible=False).queued("w", "p")
    assert sentence(world) == would_start("department d had a limit of 5 GPUs instead of 4")


def test_smallest_sufficient_quota_is_suggested_for_a_project_that_cannot_borrow() -> None:
    world = World(n=8).department("d", 8).project("p", "d", 0, over_quota=False).queued("w", "p")
    assert sentence(world) == would_start("project p had a quota of 1 GPU instead of 0")


def test_raising_the_quota_by_one_gpu_is_suggested_if_the_workload_can_then_reclaim() -> None:
    world = World(n=4).department("d", 4).project("p", "d", 0, weight=0).project("borrower", "d", 0)
    world.running("borrows", "borrower", "n n n n", least=1).queued("w", "p")
    clause = "project p had a quota of 1 GPU instead of 0"
    assert sentence(world) == would_start(clause, "This would scale down borrows.")


def test_higher_department_quota_is_suggested_for_a_non_preemptible_workload() -> None:
    world = World(n=1, m=1).department("e", 0).project("borrower", "e", 0).running("borrows", "borrower", "n")
    world.department("d", 1).project("other", "d", 1).running("holds", "other", "m", preemptible=False)
    world.project("p", "d", 8).queued("w", "p", preemptible=False)
    expected = would_start("department d had a quota of 2 GPUs instead of 1", "This would evict borrows.")
    assert sentence(world) == expected


def test_waiting_for_the_earliest_sufficient_minimum_runtime_is_suggested() -> None:
    world = World(pool=Pool("default", reclaim_min_runtime=600), n=2).department("d", 2).project("p", "d", 2)
    world.project("borrower", "d", 0)
    world.running("early", "borrower", "n", since=500).running("late", "borrower", "n", since=200)
    clause = "running workloads had passed their minimum runtime (100 s left)"
    assert sentence(world.queued("w", "p")) == would_start(clause, "This would evict early.")


@pytest.mark.parametrize(
    ("state", "clause"),
    [
        (NodeState.CORDONED, "node c were uncordoned"),
        (NodeState.DRAINING, "node c, which is draining, were uncordoned"),
    ],
)
def test_uncordoning_a_node_with_room_is_suggested(state: NodeState, clause: str) -> None:
    world = full_node().node("b", 1, state=state).running("ours", "p", "b", preemptible=False)
    assert sentence(world.node("c", 2, state=state).queued("w", "p")) == would_start(clause)


def test_consolidation_is_suggested_if_it_frees_a_whole_gpu() -> None:
    world = World(pool=Pool("default", consolidation=Consolidation(enabled=False)), a=1, b=1)
    world.department("d", 2).project("p", "d", 1).project("other", "d", 1)
    world.running("one", "other", "a", 0.5).running("two", "other", "b", 0.5)
    expected = would_start("consolidation were enabled in pool default", "This would move one.")
    assert sentence(world.queued("w", "p")) == expected


def test_smallest_sufficient_number_of_moves_is_suggested() -> None:
    world = World(pool=Pool("default", consolidation=Consolidation(max_moves=1)), a=1, b=1)
    world.department("d", 2).project("p", "d", 1).project("other", "d", 1)
    world.running("one", "other", "a", 0.25).running("two", "other", "a", 0.25)
    world.running("stays", "other", "b", 0.5, preemptible=False)
    clause = "consolidation in pool default could move 2 pods at a time instead of 1"
    assert sentence(world.queued("w", "p")) == would_start(clause, "This would move one and two.")


@pytest.mark.parametrize(("gpus", "nodes"), [(1, "1 more node"), (4, "2 more nodes")])
def test_smallest_sufficient_number_of_nodes_is_suggested(gpus: int, nodes: str) -> None:
    roles = (role("a", ask=request(gpus)), role("b", ask=request(gpus)))
    assert sentence(full_node().queued("w", "p", roles=roles)) == would_start(f"pool default had {nodes}")


@pytest.mark.parametrize(("most", "expected"), [(3, would_start("pool default had 2 more nodes")), (2, NONE)])
def test_nodes_beyond_the_pools_maximum_are_not_suggested(most: int, expected: str) -> None:
    roles = (role("a", ask=request(4)), role("b", ask=request(4)))
    world = full_node(nodes_ever=most).queued("w", "p", roles=roles)
    assert sentence(world) == expected


def test_change_that_needs_a_booting_node_is_not_suggested() -> None:
    # With more quota, the workload would get a reservation on the booting node.
    world = World().booting("m", 1).department("d", 1).project("p", "d", 0, over_quota=False)
    assert sentence(world.queued("w", "p")) == NONE


# -- other tenants


def cpu_pool() -> Pool:
    return Pool("default", node_shape=NodeShape(cpu=1000, memory_mib=1000))


def two_tenants() -> World:
    world = World(pool=cpu_pool(), n=4).department("d", 4).project("p", "d", 2).project("near", "d", 2)
    return world.department("e", 4).project("far", "e", 4)


def test_ending_a_workload_in_the_same_department_is_suggested_first() -> None:
    world = two_tenants().running("a-far", "far", "n", 2, preemptible=False)
    world.running("z-near", "near", "n", 2, preemptible=False).queued("w", "p")
    assert sentence(world) == would_start("z-near ended")


def test_workload_names_in_a_suggested_change_are_redacted() -> None:
    snapshot = two_tenants().running("secret", "far", "n", 4, preemptible=False).queued("w", "p").snapshot()
    redacted = change_sentence(smallest_change(snapshot, "w"), "p", lambda name: f"[{len(name)} letters]")
    assert redacted == would_start("[6 letters] ended")


# -- no change


def test_no_change_is_suggested_if_two_changes_are_needed() -> None:
    world = World(pool=cpu_pool(), n=1).department("d", 1).project("p", "d", 1).project("other", "d", 1)
    world.running("one", "other", "n", 0.5, preemptible=False)
    world.running("two", "other", "n", 0.5, preemptible=False)
    assert sentence(world.queued("w", "p")) == NONE


def test_suggestion_search_stops_at_the_maximum_number_of_simulations() -> None:
    snapshot = (
        full_node()
        .node("m", 1, labels={"zone": "b"}, taints=(Taint("special"),))
        .queued("w", "p", 4)
        .snapshot()
    )
    result = smallest_change(snapshot, "w", max_runs=2)
    assert (result.outcome, result.runs) == (Outcome.UNDECIDED, 2)
    assert change_sentence(result, "p") == (
        "The search for a change that would start the workload now was not completed."
    )


def test_no_change_is_suggested_for_a_workload_that_is_not_pending() -> None:
    world = one_project(n=4).running("runs", "p", "n").queued("starts", "p").queued("reserved", "p")
    world.running("ended", "p", "n", state=PodState.COMPLETED)
    world.running("stops", "p", "n", state=PodState.STOPPING)
    world.reservations.append(Reservation("reserved", "worker", 0, "n", (2,)))
    snapshot = world.snapshot()
    results = {workload.name: smallest_change(snapshot, workload.name) for workload in snapshot.workloads}
    assert {name: result.outcome for name, result in results.items()} == dict.fromkeys(
        results, Outcome.NOT_NEEDED
    )


def test_suggestion_search_leaves_the_snapshot_unchanged() -> None:
    world = full_node().queued("w", "p", 2)
    before = repr(world.snapshot())
    smallest_change(world.snapshot(), "w")
    assert repr(world.snapshot()) == before
