"""Tests for estimated start times and their limits."""

from typing import Any

import pytest

from scheduler.engine.decide import decide
from scheduler.engine.forecast import ASSUMPTIONS, CAPACITY_FREE, Forecast, forecasts
from scheduler.engine.model import Dependency, NodeState
from tests.engine.world import NOON, World


def expected_start(world: World) -> dict[str, Forecast]:
    snapshot = world.snapshot()
    return dict(forecasts(snapshot, decide(snapshot)))


def full_cluster(**more: Any) -> World:
    """Return a full cluster of eight GPUs, half freed after 600 s and half after 1200 s."""
    world = World(n0=8).department("d", None).project("p", "d", None)
    world.running("p/first", "p", "n0 n0 n0 n0", since=100, max_runtime=700)
    return world.running("p/second", "p", "n0 n0 n0 n0", since=100, max_runtime=1300, **more)


def test_first_queued_workload_is_expected_to_start_once_enough_workloads_end() -> None:
    first, second = ("p/first", NOON + 600), ("p/second", NOON + 1200)
    assert expected_start(full_cluster().queued("p/a", "p", 4)) == {
        "p/a": Forecast(NOON + 600, ASSUMPTIONS, (first,))
    }
    assert expected_start(full_cluster().queued("p/a", "p", 6)) == {
        "p/a": Forecast(NOON + 1200, ASSUMPTIONS, (first, second))
    }


def test_estimate_names_only_the_workloads_that_must_end_before_the_request_fits() -> None:
    world = World(n0=8).department("d", None).project("p", "d", None)
    world.running("p/one", "p", "n0", since=100, max_runtime=400)
    world.running("p/four", "p", "n0 n0 n0 n0", since=100, max_runtime=700)
    world.running("p/three", "p", "n0 n0 n0", since=100, max_runtime=1300)
    estimates = expected_start(world.queued("p/a", "p", 4, max_runtime=50).queued("p/b", "p", 1))
    assert estimates["p/a"].after == (("p/four", NOON + 600),)
    assert (estimates["p/b"].at, estimates["p/b"].after) == (NOON + 600, (("p/four", NOON + 600),)), (
        "it starts with the workload ahead, once more is free than that one needs"
    )


def test_estimate_names_the_pending_workload_that_starts_first() -> None:
    world = full_cluster().queued("p/a", "p", 4, max_runtime=50).queued("p/b", "p", 3)
    assert expected_start(world)["p/b"].after == (("p/a", NOON + 650),)


def test_estimate_that_depends_only_on_the_backoff_names_no_workload() -> None:
    world = World(n0=8).department("d", None).project("p", "d", None)
    estimates = expected_start(world.queued("p/a", "p", 1, backoff_until=NOON + 90))
    assert (estimates["p/a"].at, estimates["p/a"].after) == (NOON + 90, ())


def test_estimate_names_an_ending_gang_even_if_it_is_larger_than_the_request() -> None:
    world = World(n0=8).department("d", None).project("p", "d", None).running("p/rest", "p", "n0 n0 n0 n0")
    world.running("p/four", "p", "n0 n0 n0 n0", since=100, max_runtime=700)
    estimate = expected_start(world.queued("p/a", "p", 2, backoff_until=NOON + 600))["p/a"]
    assert (estimate.at, estimate.after) == (NOON + 600, (("p/four", NOON + 600),))


def test_workloads_are_expected_to_start_in_queue_order() -> None:
    world = full_cluster().queued("p/a", "p", 4, max_runtime=50).queued("p/b", "p", 3)
    assert {name: estimate.at for name, estimate in expected_start(world).items()} == {
        "p/a": NOON + 600, "p/b": NOON + 650,
    }  # fmt: skip


def test_workloads_without_a_maximum_runtime_are_not_expected_to_end() -> None:
    world = World(n0=8).department("d", None).project("p", "d", None)
    world.running("p/long", "p", "n0 n0 n0 n0 n0 n0", since=100)
    world.running("p/short", "p", "n0 n0", since=100, max_runtime=700)
    estimates = expected_start(world.queued("p/a", "p", 4).queued("p/b", "p", 2))
    assert estimates["p/a"].at is None
    assert estimates["p/a"].because == (
        "workloads without a maximum runtime have 6 GPUs allocated in pool default, "
        "and this workload needs 2 GPUs of that"
    )
    assert estimates["p/b"].at == NOON + 600, (
        "a workload without an estimate does not hide the estimates of others"
    )


def test_missing_start_estimate_is_explained_by_too_few_ready_nodes() -> None:
    world = World(n0=8).node("n1", state=NodeState.CORDONED).department("d", None).project("p", "d", None)
    world.running("p/long", "p", "n0 n0", since=100)
    assert expected_start(world.queued("p/a", "p", 10))["p/a"].because == (
        "even if no workload ran, the ready nodes of pool default would lack 2 GPUs"
    )


def test_start_estimate_is_omitted_if_capacity_is_not_the_only_blocker() -> None:
    # A constant estimate of "now" would be useless and would change in every cycle.
    world = World(n0=8).department("d", None).project("p", "d", None)
    world.running("p/late", "p", "n0 n0 n0 n0 n0 n0 n0 n0", since=5000, max_runtime=60)
    assert expected_start(world.queued("p/a", "p", 1))["p/a"] == Forecast(None, CAPACITY_FREE)


@pytest.mark.parametrize(
    ("more", "because"),
    [
        ({"gpus": 16}, "the workload can never start as specified"),
        ({"suspended": True}, "a user has to resume the workload"),
        ({"after": (Dependency("p/first"),)}, "the workloads that it waits for have to end first"),
    ],
)
def test_explanation_without_a_start_estimate_suggests_a_remedy(more: dict[str, Any], because: str) -> None:
    assert expected_start(full_cluster().queued("p/a", "p", 1, **more))["p/a"] == Forecast(None, because)


@pytest.mark.parametrize(
    ("gpus", "because"),
    [
        (4, "another workload in the project has to end, or the limit has to be raised"),
        (5, "the request alone exceeds the limit; lower the request or raise the limit"),
    ],
)
def test_request_that_needs_the_whole_limit_or_more_has_no_expected_start(gpus: int, because: str) -> None:
    world = World(n0=8).department("d", None).project("p", "d", 4, limit=4)
    world.running("p/long", "p", "n0", since=100, max_runtime=700, preemptible=False)
    assert expected_start(world.queued("p/a", "p", gpus))["p/a"] == Forecast(None, because)


def test_request_that_exceeds_the_limit_has_no_expected_start_while_no_node_is_ready() -> None:
    world = (
        World().department("d", None).project("p", "d", 4, limit=4).node("n0", 8, state=NodeState.CORDONED)
    )
    because = "the request alone exceeds the limit; lower the request or raise the limit"
    assert expected_start(world.queued("p/a", "p", 5))["p/a"] == Forecast(None, because)


@pytest.mark.parametrize(
    ("gpus", "because"),
    [
        (4, "another workload in the project has to end, or the quota has to be raised"),
        (5, "the request alone exceeds the quota; lower the request or raise the quota"),
    ],
)
def test_request_for_the_whole_quota_or_more_has_no_expected_start(gpus: int, because: str) -> None:
    world = World(n0=8).department("d", None).project("p", "d", 4)
    world.running("p/long", "p", "n0", since=100, max_runtime=700, preemptible=False)
    queued = world.queued("p/a", "p", gpus, preemptible=False)
    assert expected_start(queued)["p/a"] == Forecast(None, because)


def test_start_estimate_includes_the_backoff() -> None:
    estimates = expected_start(full_cluster().queued("p/a", "p", 4, backoff_until=NOON + 900))
    assert estimates["p/a"].at == NOON + 900
