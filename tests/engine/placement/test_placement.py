"""Tests for the placement of replicas on nodes, devices and racks."""

import pytest

from scheduler.engine.model import Node, Pool, RoleGroup, Strategy, TopologyConstraint
from scheduler.engine.plan import Reason
from tests.engine.world import World, find_bundle, placed, reasons, request, role, steps


def one_project(**nodes: int) -> World:
    return World(pool=None, **nodes).department("d", None).project("a", "d", None)


def test_binpack_fills_the_tightest_node() -> None:
    assert placed(one_project(wide=8, tight=2).queued("w", "a", gpus=2).decide()) == {"w": ["tight"]}


def test_spread_selects_the_emptiest_node() -> None:
    world = World(pool=Pool("default", node_strategy=Strategy.SPREAD), n1=4, n2=4).department("d", None)
    world.project("a", "d", None).running("there", "a", "n1")
    assert placed(world.queued("w", "a").decide()) == {"w": ["n2"]}


def test_fractions_share_a_device_while_it_has_room() -> None:
    plan = one_project(n1=2, n2=2).queued("x", "a", gpus=0.5).queued("y", "a", gpus=0.5).decide()
    assert [step.devices for step in steps(plan)] == [(0,), (0,)] and placed(plan)["x"] == placed(plan)["y"]


def test_request_for_fractions_of_two_devices_uses_two_shared_devices() -> None:
    world = one_project(n=2).queued("two", "a", roles=(role(ask=request(0.5, devices=2)),)).queued("one", "a")
    plan = world.decide()
    assert find_bundle(plan, "two").steps[0].devices == (0, 1)
    assert Reason.FRAGMENTED in reasons(plan, "one")  # a device is never both whole and shared


def test_memory_request_allocates_a_fraction_of_the_chosen_device() -> None:
    world = World().node("n", 1, gpu_memory_mib=8000).department("d", None).project("a", "d", None)
    (step,) = steps(world.queued("w", "a", roles=(role(ask=request(gpu_memory=2001)),)).decide())
    assert step.milli == 251


def test_roles_that_do_not_fit_in_the_first_arrangement_are_rearranged() -> None:
    roles = (role("three", 2, ask=request(3)), role("two", 3, ask=request(2)))
    plan = one_project(n1=6, n2=6).queued("puzzle", "a", roles=roles).decide()
    assert len(placed(plan)["puzzle"]) == 5


def racks() -> World:
    world = World(pool=Pool("default", topology=("rack",)))
    for name, rack, gpus in (("n1", "r1", 2), ("n2", "r1", 2), ("n3", "r2", 3)):
        world.nodes.append(Node(name, "default", gpus, labels={"rack": rack}, cpu=8000, memory_mib=8000))
    return world.department("d", None).project("a", "d", None)


@pytest.mark.shows("RAI-53")
def test_gang_with_a_required_rack_is_placed_in_one_rack() -> None:
    inside = TopologyConstraint(required="rack")
    four = racks().queued("four", "a", replicas=4, topology=inside).decide()
    assert placed(four)["four"] == ["n1", "n1", "n2", "n2"]
    five = racks().queued("five", "a", replicas=5, topology=inside).decide()
    assert not five.bundles and reasons(five, "five")[0] is Reason.EXCEEDS_DOMAIN


def test_gang_is_placed_outside_a_preferred_rack_that_is_too_small() -> None:
    plan = racks().queued("five", "a", replicas=5, topology=TopologyConstraint(preferred="rack")).decide()
    assert len(placed(plan)["five"]) == 5


@pytest.mark.shows("RAI-16", "RAI-18")
def test_workload_that_needs_one_role_group_starts_with_the_group_that_fits() -> None:
    big, small = role("big", ask=request(8)), role("small", ask=request(1))
    tree = RoleGroup("w", (RoleGroup("g1", (big,), 1), RoleGroup("g2", (small,), 1)), need=1)
    assert [step.role for step in steps(one_project(n=4).queued("w", "a", tree=tree).decide())] == ["small"]
