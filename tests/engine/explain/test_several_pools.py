"""Tests for rejecting a workload that is too large for each of several pools."""

import pytest

from scheduler.engine.decide import decide
from scheduler.engine.forecast import forecast_pending
from scheduler.engine.model import Pool
from scheduler.engine.plan import Blocker, Reason
from tests.engine.world import NOON, World

POOLS = {"local": 4.0, "serve": 4.0, "train": 64.0}


def rejection(gpus: float = 1, replicas: int = 1, *, pools: tuple[str, ...] = tuple(POOLS)) -> Blocker:
    """Return the first blocker of a workload in a cluster whose largest nodes are in the last pool."""
    world = World(pool=Pool("local"))
    world.pools += [Pool("serve"), Pool("train")]
    world.department("d", pools=POOLS).project("p", "d", pools=POOLS)
    world.node("l", 2).node("s", 4, cpu=128, pool="serve").node("t", 8, pool="train")
    world.queued("w", "p", replicas, gpus, pools=pools)
    (rejected,) = world.decide().rejections
    return rejected.blockers[0]


@pytest.mark.parametrize("pools", [("local", "serve", "train"), ("train", "local"), ("local", "train")])
def test_pending_reason_names_the_largest_node_in_the_allowed_pools(pools: tuple[str, ...]) -> None:
    assert rejection(9, pools=pools).message == (
        "Each replica of role worker requests 9 GPUs; "
        "the largest node in the allowed pools has 8 GPUs (pool train)."
    )


def test_pending_reason_does_not_name_the_only_allowed_pool() -> None:
    assert rejection(9, pools=("local",)).message == (
        "Each replica of role worker requests 9 GPUs; the largest node in the pool has 2 GPUs."
    )


def test_pending_reason_names_the_largest_pool_if_the_request_exceeds_all_allowed_pools() -> None:
    assert rejection(1, 9).message == (
        "Requests 9 GPUs, more than pool train, the largest of the allowed pools, "
        "provides at its maximum size (8 GPUs)."
    )


def test_pending_reason_names_only_one_pool_if_pools_reject_for_different_reasons() -> None:
    first = rejection(5, 2)
    assert first.reason is Reason.EXCEEDS_POOL_MAX
    assert first.message == "Requests 10 GPUs, more than pool train provides at its maximum size (8 GPUs)."


@pytest.mark.parametrize("pools", [("soon", "late"), ("late", "soon")])
def test_pool_with_the_earliest_expected_start_is_chosen(pools: tuple[str, ...]) -> None:
    world = World(pool=Pool("soon"))
    world.pools.append(Pool("late"))
    world.department("d", pools={"soon": 8, "late": 16})
    world.project("p", "d", pools={"soon": 0, "late": 8}).project("q", "d", pools={"soon": 8, "late": 8})
    world.node("s", 8).node("l", 8, pool="late")
    world.running("q/short", "q", "s", 8, since=100, max_runtime=700, pools=("soon",))
    world.running("q/long", "q", "l", 8, since=100, max_runtime=1300, pools=("late",))
    snapshot = world.queued("p/w", "p", 1, 8, pools=pools).snapshot()
    plan = decide(snapshot)
    assert [each.pool for each in plan.rejections] == ["late"], "its first reason is the least dominant"
    chosen, forecasts = forecast_pending(snapshot, plan)
    assert [(each.pool, each.position) for each in chosen.rejections] == [("soon", 1)]
    assert forecasts["p/w"].at == NOON + 600


@pytest.mark.parametrize("pools", [("a", "b"), ("b", "a")])
def test_second_workload_is_expected_in_the_pool_that_the_first_does_not_use(pools: tuple[str, ...]) -> None:
    world = two_full_pools().queued("p/v", "p", 1, 8, pools=pools, max_runtime=700)
    snapshot = world.queued("p/w", "p", 1, 8, pools=pools).snapshot()
    plan, forecasts = forecast_pending(snapshot, decide(snapshot))
    assert {each.workload: (each.pool, each.position) for each in plan.rejections} == {
        "p/v": ("a", 1), "p/w": ("b", 1)
    }  # fmt: skip
    assert [forecasts[name].at for name in ("p/v", "p/w")] == [NOON + 600, NOON + 1200]


def test_workload_is_expected_no_earlier_than_one_ahead_that_starts_in_another_pool() -> None:
    world = two_full_pools().queued("p/v", "p", 1, 8, pools=("a", "b"), max_runtime=700)
    world.running("q/c", "q", "b0 b0", since=100, max_runtime=200, pools=("b",))
    snapshot = world.queued("p/w", "p", 1, 2, pools=("b",)).snapshot()
    forecasts = forecast_pending(snapshot, decide(snapshot))[1]
    assert (forecasts["p/v"].at, forecasts["p/w"].at) == (NOON + 600, NOON + 600)
    assert forecasts["p/v"].after == (("q/a", NOON + 600),)


def two_full_pools() -> World:
    """Return a world in which 8 GPUs of pool a are free after 600 s, and 6 of 8 in pool b after 1200 s."""
    world = World(pool=Pool("a"))
    world.pools.append(Pool("b"))
    world.department("d", pools={"a": 8, "b": 8}).project("p", "d", pools={"a": 0, "b": 0})
    world.project("q", "d", pools={"a": 8, "b": 8}).node("a0", 8).node("b0", 8, pool="b")
    world.running("q/a", "q", " ".join(["a0"] * 8), since=100, max_runtime=700, pools=("a",))
    return world.running("q/b", "q", " ".join(["b0"] * 6), since=100, max_runtime=1300, pools=("b",))
