"""Tests that a gang is placed whenever a valid arrangement exists."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.engine.model import (
    Node,
    Pool,
    Role,
    RoleGroup,
    Strategy,
    Taint,
    Toleration,
    TopologyConstraint,
)
from tests.engine.reference.arrangements import LEVELS, has_arrangement
from tests.engine.test_invariants import on_random_clusters
from tests.engine.world import World, placed, request, role, steps


@st.composite
def nodes(draw: st.DrawFn) -> tuple[Node, ...]:
    return tuple(
        Node(
            f"n{number}", "default", draw(st.sampled_from((1, 2, 2, 3, 4))), draw(st.sampled_from("AAB")),
            draw(st.sampled_from((8000, 16_000))), draw(st.sampled_from((2000, 4000, 8000))), 100_000,
            labels={"zone": draw(st.sampled_from("xy")), "rack": draw(st.sampled_from("12"))},
            taints=draw(st.sampled_from(((), (), (Taint("kept"),)))),
        )
        for number in range(draw(st.integers(1, 4)))
    )  # fmt: skip


@st.composite
def roles(draw: st.DrawFn, name: str) -> Role:
    gpus, devices = draw(
        st.sampled_from(((0, None), (0.3, None), (0.5, None), (0.7, None), (0.5, 2), (1, None), (2, None)))
    )
    memory = draw(st.sampled_from((0, 0, 0, 0, 5000)))
    count = draw(st.integers(1, 3))
    return role(
        name, count,
        ask=request(gpus, devices, cpu=draw(st.sampled_from((0.5, 1, 2, 4))), gpu_memory=memory),
        gpu_models=draw(st.sampled_from(((), (), (), ("A",), ("B",)))),
        tolerations=draw(st.sampled_from(((), (Toleration("kept"),)))),
        spread_per_node=draw(st.sampled_from((None, None, 1))),
        topology=draw(constraints()),
    )  # fmt: skip


def constraints() -> st.SearchStrategy[TopologyConstraint | None]:
    levels = st.sampled_from((None, *LEVELS))
    return st.one_of(st.none(), st.none(), st.builds(TopologyConstraint, levels, levels))


@st.composite
def trees(draw: st.DrawFn) -> RoleGroup:
    groups = []
    for number in range(draw(st.integers(1, 2))):
        children = tuple(draw(roles(f"r{number}{n}")) for n in range(draw(st.integers(1, 2))))
        groups.append(RoleGroup(f"g{number}", children, len(children), draw(constraints())))
    return RoleGroup("w", tuple(groups), len(groups), draw(constraints()))


@on_random_clusters(15)
@given(nodes(), trees(), st.sampled_from(("binpack", "spread", "fragmentation")))
def test_gang_is_placed_whenever_a_valid_placement_exists(
    where: tuple[Node, ...], tree: RoleGroup, word: str
) -> None:
    strategy = Strategy(word)
    world = World(pool=Pool("default", strategy, strategy, topology=LEVELS)).department("d", None)
    world.nodes.extend(where)
    plan = world.project("a", "d", None).queued("w", "a", tree=tree).decide("allocate")
    assert bool(plan.bundles) == has_arrangement(where, tree)


def test_cpu_bound_role_leaves_gpus_to_the_gpu_bound_role() -> None:
    roles = (role("thinks", 2, ask=request(1, cpu=6)), role("draws", 2, ask=request(3, cpu=1)))
    cluster = gangs("w", roles).node("a", 4, cpu=8).node("b", 4, cpu=7)
    assert placed(cluster.decide())["w"] == ["a", "a", "b", "b"]


def test_two_role_groups_are_assigned_to_racks_so_that_both_fit() -> None:
    # The first group fits in either rack but must leave the only rack that fits the second group.
    rack = TopologyConstraint(required="rack")
    small = RoleGroup("small", (role("s", 2, ask=request(1)),), 1, rack)
    large = RoleGroup("large", (role("l", 2, ask=request(2)),), 1, rack)
    for groups in ((small, large), (large, small)):
        cluster = gangs("w", tree=RoleGroup("w", groups, 2))
        for name, place in (("n1", "1"), ("n2", "1"), ("n3", "2"), ("n4", "2")):
            cluster.node(name, 2 if place == "1" else 1, labels={"zone": "x", "rack": place})
        assert placed(cluster.decide())["w"] == ["n1", "n2", "n3", "n4"]


def test_placement_considers_spreading_and_tolerations_together() -> None:
    # The tolerant role leaves the untainted node to the role without a toleration.
    hardy = role("hardy", 2, ask=request(1), tolerations=(Toleration("kept"),), spread_per_node=1)
    plain = role("plain", 1, ask=request(2))
    cluster = gangs("w", (hardy, plain)).node("a", 2).node("b", 2, taints=(Taint("kept"),))
    cluster.node("c", 1)
    assert placed(cluster.decide())["w"] == ["a", "b", "c"]


def test_multi_device_fractions_leave_enough_devices_for_the_next_replica() -> None:
    # Halves of the two fullest devices would leave the second replica only one device.
    cluster = gangs("w", (role("pair", 2, ask=request(0.5, devices=2)),)).node("n", 3)
    cluster.running("x", "a", "n", 0.6).running("y", "a", "n", 0.5).running("z", "a", "n", 0.5)
    assert [step.devices for step in steps(cluster.decide()) if step.workload == "w"] == []
    cluster = gangs("w", (role("pair", 2, ask=request(0.5, devices=2)),)).node("n", 3)
    cluster.running("y", "a", "n", 0.5, submitted=0)
    pairs = sorted(step.devices for step in steps(cluster.decide()) if step.workload == "w")
    assert pairs in ([(0, 1), (1, 2)], [(0, 2), (1, 2)])


@pytest.mark.parametrize(("word", "device"), [("binpack", 1), ("spread", 2), ("fragmentation", 1)])
def test_fraction_uses_the_fullest_device_with_binpack_and_the_emptiest_with_spread(
    word: str, device: int
) -> None:
    # The devices have free shares of 0.3, 0.5 and 1.0, and the request is 0.4.
    pool = Pool("default", Strategy(word), Strategy(word))
    cluster = World(pool=pool, n=3).department("d", None).project("a", "d", None)
    cluster.running("x", "a", "n", 0.7).running("y", "a", "n", 0.5).queued("w", "a", gpus=0.4)
    cluster.queued("later", "a", gpus=1)
    assert [step.devices for step in steps(cluster.decide("allocate")) if step.workload == "w"] == [(device,)]


def test_memory_request_uses_a_device_with_enough_free_memory() -> None:
    # The request takes three quarters of the small device or a quarter of the large device.
    cluster = gangs("w", (role("r", 3, ask=request(gpu_memory=6000)),))
    cluster.node("large", 1, gpu_memory_mib=24_000).node("small", 1, gpu_memory_mib=8000)
    plan = cluster.decide()
    share = {step.node: step.milli for step in steps(plan)}
    assert len(placed(plan)["w"]) == 3 and share.get("large") == 250 and share.get("small", 750) == 750


def test_memory_requests_share_large_devices_to_keep_small_devices_whole() -> None:
    # On the small devices alone, the replicas would take more GPUs than the nodes have.
    small = request(gpu_memory=5000, cpu=0.5)
    first = RoleGroup("first", (role("f", 2, ask=small), role("pair", 1, ask=request(2, cpu=0.5))), 2)
    second = RoleGroup("second", (role("s", 2, ask=small),), 1)
    cluster = gangs("w", tree=RoleGroup("w", (first, second), 2))
    cluster.node("large", 2, cpu=2, gpu_memory_mib=16_000).node("small", 2, cpu=2, gpu_memory_mib=8000)
    assert placed(cluster.decide())["w"] == ["large"] * 4 + ["small"]


def gangs(name: str, roles: tuple[Role, ...] = (), tree: RoleGroup | None = None) -> World:
    world = World(pool=Pool("default", topology=LEVELS)).department("d", None).project("a", "d", None)
    return world.queued(name, "a", roles=roles, tree=tree)
