"""Tests for the smallest change that lets an unschedulable workload start."""

import pytest

from scheduler.engine.model import NodeState, RoleGroup
from scheduler.engine.smallest_change.search import Outcome, smallest_change
from scheduler.engine.smallest_change.sentences import change_sentence
from tests.engine.explain.test_smallest_change import (
    NONE,
    cpu_pool,
    full_node,
    one_project,
    sentence,
    would_start,
)
from tests.engine.world import NOON, World, request, role


def could_start(clause: str) -> str:
    return f"The workload could start once resources are free if {clause}."


def test_request_that_fits_on_the_nodes_is_suggested_even_if_the_nodes_are_in_use() -> None:
    world = full_node().queued("w", "p", gpus=8)
    result = smallest_change(world.snapshot(), "w")
    assert result.outcome is Outcome.SCHEDULABLE
    assert change_sentence(result, "p") == (
        "The workload could start once resources are free if "
        "each replica of role worker requested 4 GPUs instead of 8."
    )


def test_smaller_gang_is_preferred_to_raising_the_pools_maximum() -> None:
    # At the maximum of 2 nodes, the pool has room for 8 replicas. None of them could start now.
    gang = role("worker", 10, ask=request(1))
    result = smallest_change(full_node(nodes_max=2).queued("w", "p", roles=(gang,)).snapshot(), "w")
    assert result.outcome is Outcome.SCHEDULABLE
    assert change_sentence(result, "p") == (
        "The workload could start once resources are free if it had 8 worker replicas instead of 10."
    )


@pytest.mark.parametrize("replicas", [20, 200])
def test_suggestion_prefers_a_gang_of_less_than_half_the_size_to_a_higher_limit(replicas: int) -> None:
    world = World(pool=cpu_pool(), n=8).department("d", 8).project("p", "d", 4, limit=4)
    world.running("one", "p", "n", 3, preemptible=False)
    gang = role("worker", replicas, ask=request(1))
    assert sentence(world.queued("w", "p", roles=(gang,))) == could_start(
        f"it had 4 worker replicas instead of {replicas}"
    )


def test_gang_of_less_than_half_the_size_starts_now_if_the_nodes_are_free() -> None:
    gang = role("worker", 20, ask=request(1))
    world = one_project(quota=8).node("n", 4).queued("w", "p", roles=(gang,))
    assert sentence(world) == would_start("it had 4 worker replicas instead of 20")


def test_smaller_gang_is_suggested_if_the_request_alone_exceeds_a_partly_used_limit() -> None:
    world = World(n=8, pool=cpu_pool()).department("d", 8).project("p", "d", 4, limit=4)
    world.running("one", "p", "n", 3, preemptible=False)
    gang = role("worker", 6, ask=request(1))
    result = smallest_change(world.queued("w", "p", roles=(gang,)).snapshot(), "w")
    assert change_sentence(result, "p") == (
        "The workload could start once resources are free if it had 4 worker replicas instead of 6."
    )


def test_lower_request_is_suggested_if_the_request_alone_exceeds_the_limit_and_no_node_is_ready() -> None:
    world = World(pool=cpu_pool()).department("d", 8, limit=2).project("p", "d", 8)
    world.node("n", 8, state=NodeState.CORDONED).queued("w", "p", gpus=4)
    assert sentence(world) == could_start("each replica of role worker requested 2 GPUs instead of 4")


def test_preemptibility_is_suggested_if_the_request_alone_exceeds_the_quota_while_nodes_are_full() -> None:
    world = full_node().project("poor", "d", 0).queued("w", "poor", preemptible=False)
    assert sentence(world) == could_start("it were preemptible")


def test_dropping_a_label_is_not_suggested_if_the_request_alone_exceeds_the_quota() -> None:
    world = one_project(quota=1).node("n", 4, labels={"zone": "b"})
    selector = {"node_selector": {"zone": "a"}}
    assert sentence(world.queued("w", "p", gpus=2, preemptible=False, on_role=selector)) == NONE
    assert sentence(world.queued("x", "p", gpus=1, preemptible=False, on_role=selector), "x") != NONE


def test_lower_request_is_not_suggested_during_the_backoff_if_it_would_exceed_the_limit() -> None:
    world = World(pool=cpu_pool(), n=4).department("d", 8).project("p", "d", 8, limit=1)
    gang = role("worker", 2, ask=request(8))
    assert sentence(world.queued("w", "p", roles=(gang,), backoff_until=NOON + 90)) == NONE


def test_workload_is_schedulable_if_its_smaller_alternative_fits_its_quota() -> None:
    large, small = role("large", 1, ask=request(2)), role("small", 1, ask=request(1))
    either = RoleGroup("w", (RoleGroup("a", (large,), 1), RoleGroup("b", (small,), 1)), need=1)
    world = World(pool=cpu_pool(), n=4).department("d", 4).project("p", "d", 1)
    world.running("holds", "p", "n", 1, preemptible=False)
    world.department("e", 4).project("far", "e", 3).running("fills", "far", "n", 3, preemptible=False)
    result = smallest_change(world.queued("w", "p", tree=either, preemptible=False).snapshot(), "w")
    assert result.outcome is not Outcome.SCHEDULABLE


def test_gpu_memory_is_converted_to_device_fractions_even_if_all_nodes_are_cordoned() -> None:
    world = World(pool=cpu_pool()).department("d", 8).project("p", "d", 8, limit=1)
    world.node("n", 4, state=NodeState.CORDONED)
    gang = role("worker", 2, ask=request(1, gpu_memory=40_000))
    result = smallest_change(world.queued("w", "p", roles=(gang,)).snapshot(), "w")
    assert result.outcome is Outcome.CHANGE
    assert change_sentence(result, "p") == would_start("node n were uncordoned")


def test_lower_request_is_not_suggested_if_another_resource_exceeds_its_quota() -> None:
    # At first the pool's size and then the GPU quota rule out the start. The CPU quota always does.
    world = World(pool=cpu_pool(), n=2).department("d", 1, cpu=0, over_quota=False).project("p", "d", 1)
    world.running("one", "p", "n", 0.25)
    gang = role("worker", 3, ask=request(1, cpu=1))
    assert sentence(world.queued("w", "p", roles=(gang,))) == NONE
