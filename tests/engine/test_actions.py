"""Tests for the engine's actions on small clusters."""

import pytest

from scheduler.engine.model import Consolidation, Pool, Reservation
from scheduler.engine.plan import Kind, Place, Reason
from tests.engine.world import World, evicted, find_bundle, placed, reasons, stopped


def two_projects(quota_a: float, quota_b: float, **nodes: int) -> World:
    return (
        World(pool=None, **nodes)
        .department("d", quota=None)
        .project("a", "d", quota_a)
        .project("b", "d", quota_b)
    )


@pytest.mark.shows("RAI-36", "RAI-22")
def test_reclaim_evicts_only_as_many_of_the_newest_borrowers_as_needed() -> None:
    world = two_projects(2, 2, n=4).running("old", "b", "n n").running("new", "b", "n n", since=60)
    plan = world.queued("owner", "a", replicas=2).decide()
    assert stopped(plan) == {"new"}
    assert find_bundle(plan, "owner").evictions[0].preemptor == "owner"


def test_workload_with_a_reservation_starts_once_even_if_an_eviction_repeats_the_cycles_actions() -> None:
    world = two_projects(3, 2, m=1, n=4).running("old", "b", "n n").running("new", "b", "n n", since=60)
    world.queued("reserved", "a").queued("owner", "a", replicas=2)
    world.reservations.append(Reservation("reserved", "worker", 0, "m", (0,)))
    plan = world.decide()
    assert stopped(plan) == {"new"}
    assert find_bundle(plan, "reserved").kind is Kind.START
    assert placed(plan)["reserved"] == ["m"]


@pytest.mark.shows("RAI-38", "RAI-45")
def test_priority_does_not_protect_against_reclaim_by_another_project() -> None:
    world = two_projects(4, 0, n=4).running("loud", "b", "n n n n", priority=95)
    assert stopped(world.queued("quiet", "a", gpus=4, priority=25).decide()) == {"loud"}


def test_nothing_is_reclaimed_from_a_queue_at_its_fair_share() -> None:
    world = two_projects(2, 2, n=4).running("b1", "b", "n n").running("a1", "a", "n n")
    plan = world.queued("more", "a").decide()
    assert plan.bundles == () and Reason.WOULD_EXCEED_FAIR_SHARE in reasons(plan, "more")


@pytest.mark.shows("RAI-23", "RAI-43")
def test_workload_preempts_lower_priority_workloads_only_in_its_own_project() -> None:
    world = two_projects(2, 2, n=4).running("mine", "a", "n n").running("theirs", "b", "n n", priority=25)
    assert stopped(world.queued("urgent", "a", gpus=2, priority=90).decide()) == {"mine"}


def test_project_at_its_limit_preempts_its_own_workloads() -> None:
    world = World(n=8).department("d", None).project("a", "d", 4, limit=4).running("low", "a", "n n n n")
    plan = world.queued("high", "a", gpus=1, priority=90).decide()
    (bundle,) = plan.bundles
    assert stopped(plan) == {"low"}
    assert all(
        step.reserved for step in bundle.steps if isinstance(step, Place)
    )  # the limit allows no start before the victim has stopped


@pytest.mark.shows("RAI-31", "RAI-32")
def test_consolidation_places_every_moved_workload() -> None:
    world = World(n1=4, n2=4).department("d", None).project("a", "d", 8)
    plan = world.running("x", "a", "n1").running("y", "a", "n2").queued("wide", "a", gpus=4).decide()
    assert find_bundle(plan, "wide").kind is Kind.CONSOLIDATE
    assert not evicted(plan) and {"x", "y"} & placed(plan).keys()


@pytest.mark.shows("RAI-35")
def test_consolidation_can_be_disabled() -> None:
    world = World(pool=Pool("default", consolidation=Consolidation(enabled=False)), n1=4, n2=4)
    world.department("d", None).project("a", "d", 8).running("x", "a", "n1").running("y", "a", "n2")
    plan = world.queued("wide", "a", gpus=4).decide()
    assert plan.bundles == () and Reason.FRAGMENTED in reasons(plan, "wide")


@pytest.mark.shows("PAD-20", "PAD-21")
def test_most_scaled_up_workload_is_scaled_down_for_another_gangs_minimum() -> None:
    world = World(n=6).department("d", None).project("a", "d", 6)
    world.running("full", "a", "n n n n", least=1).running("half", "a", "n n", least=1, up_to=3)
    plan = world.queued("new", "a").decide()
    assert evicted(plan) == {"full": 1} and find_bundle(plan, "new").kind is Kind.SHRINK


@pytest.mark.shows("PAD-22", "PAD-27")
def test_no_workload_is_scaled_down_below_its_minimum() -> None:
    world = (
        World(n=2).department("d", None).project("a", "d", 2).running("tight", "a", "n n", least=2, up_to=4)
    )
    plan = world.queued("new", "a").decide()
    assert not evicted(plan) and reasons(plan, "new")


@pytest.mark.shows("RAI-57", "RAI-58")
def test_min_runtime_is_inherited_from_the_department() -> None:
    world = (
        World(n=2).department("d", None, reclaim_min_runtime=600).project("a", "d", 2).project("b", "d", 0)
    )
    world.running("guest", "b", "n n", since=300).queued("owner", "a", gpus=2)
    plan = world.decide()
    assert not plan.bundles and Reason.VICTIMS_PROTECTED in reasons(plan, "owner")


def test_workload_placed_in_this_cycle_is_not_evicted() -> None:
    world = two_projects(4, 0, n=4).running("guest", "b", "n n")
    plan = world.queued("big", "a", gpus=4).queued("small", "b").decide()
    assert stopped(plan) == {"guest"} and "small" not in placed(plan) and reasons(plan, "small")
