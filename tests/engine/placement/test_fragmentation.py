"""Tests that fragmentation-aware placement keeps free capacity usable."""

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.engine.board.request_mix import RequestMix
from scheduler.engine.layout.layout import Layout
from scheduler.engine.model import Pool, Strategy
from scheduler.engine.placement.fragmentation import Fragmentation
from scheduler.engine.placement.slots import UsableCapacity, pick_slot
from scheduler.simulator import load, simulate
from tests.engine.test_invariants import on_random_clusters
from tests.engine.world import World, placed, request, role, steps

BY_FRAGMENTATION = Pool("default", Strategy.FRAGMENTATION, Strategy.FRAGMENTATION)


def world(pool: Pool = BY_FRAGMENTATION, **nodes: int) -> World:
    return World(pool=pool, **nodes).department("d", None).project("a", "d", None)


def test_workload_without_a_gpu_model_avoids_the_scarce_model() -> None:
    cluster = world().node("a-scarce", 2, gpu_model="H100").node("plain", 2, gpu_model="T4")
    picky = {"gpu_models": ("H100",)}
    cluster.queued("first", "a", gpus=2).queued("picky", "a", gpus=2, on_role=picky)
    assert placed(cluster.decide()) == {"first": ["plain"], "picky": ["a-scarce"]}


def test_cpu_heavy_workload_is_placed_on_the_node_with_the_most_cpu_per_gpu() -> None:
    cluster = world().node("a-lean", 4, cpu=16).node("rich", 4, cpu=64)
    cluster.queued("hungry", "a", gpus=1, cpu=14)
    for number in range(4):
        cluster.queued(f"modest{number}", "a", gpus=1, cpu=3)
    nodes = placed(cluster.decide())
    assert nodes["hungry"] == ["rich"] and len(nodes) == 5


def test_fraction_is_placed_on_the_device_that_is_least_useful_to_other_workloads() -> None:
    cluster = world(n=2).running("there", "a", "n", 0.5)
    for number in range(3):
        cluster.queued(f"whole{number}", "a", gpus=1)
    cluster.queued("share", "a", gpus=0.5, submitted=0)
    (step,) = [s for s in steps(cluster.decide()) if s.workload == "share"]
    assert step.devices == (0,)


def test_fragmentation_loss_depends_on_the_common_request_sizes() -> None:
    # Large requests keep a whole node free. With small requests, using another node loses nothing.
    cluster = world(a_wide=4, b_used=4).running("there", "a", "b_used", 1, up_to=1)
    for number in range(3):
        cluster.queued(f"wide{number}", "a", gpus=4)
    cluster.queued("one", "a", gpus=1, submitted=0)
    assert placed(cluster.decide())["one"] == ["b_used"]


@pytest.mark.parametrize(
    ("nodes", "requests", "strategy"),
    [
        (("T4", "T4"), (1, 2), Strategy.BINPACK),
        (("T4", "A10"), (1, 2), Strategy.FRAGMENTATION),
        (("T4", "T4"), (1, 0.5), Strategy.FRAGMENTATION),
    ],
)
def test_auto_strategy_minimizes_fragmentation_in_mixed_pools(
    nodes: tuple[str, ...], requests: tuple[float, ...], strategy: Strategy
) -> None:
    cluster = world(Pool("default", Strategy.AUTO, Strategy.AUTO))
    for number, model in enumerate(nodes):
        cluster.node(f"n{number}", 4, gpu_model=model)
    for number, gpus in enumerate(requests):
        cluster.queued(f"w{number}", "a", gpus=gpus)
    (board,) = Layout(cluster.snapshot()).boards.values()
    assert (board.pool.node_strategy, board.pool.device_strategy) == (strategy, strategy)


def test_placement_strategy_of_a_scenario_defaults_to_binpack() -> None:
    base = {
        "format": "berth.scenario/1",
        "nodes": [{"name": "n", "gpus": 2, "cpu": 8, "memory_mib": 8000}],
        "departments": [{"name": "d", "quotas": {"default": {"gpu": None}}}],
        "projects": [{"name": "p", "department": "d", "quotas": {"default": {"gpu": None}}}],
        "workloads": [{"name": "w", "project": "p", "roles": [{"name": "r", "replicas": 1, "gpu": 1}]}],
    }
    for word in ("fragmentation", "auto"):
        scenario = load({**base, "pools": [{"name": "default", "placement": word}]})
        assert scenario.snapshot.pools[0].node_strategy == word
        assert simulate(scenario)["workloads"]["w"]["pods"][0]["node"] == "n"
    assert load(base).snapshot.pools[0].node_strategy is Strategy.BINPACK


REQUESTS = st.tuples(
    st.sampled_from((0, 0.2, 0.5, 0.7, 1, 2, 4)), st.sampled_from((1, 4, 12)), st.sampled_from(((), ("A",)))
)
NODES = st.lists(st.tuples(st.sampled_from((0, 1, 2, 4)), st.sampled_from((8, 32)), st.sampled_from("AB")),
                 min_size=1, max_size=5)  # fmt: skip


def mixed_cluster(
    nodes: list[tuple[int, int, str]], requests: list[tuple[float, int, tuple[str, ...]]]
) -> World:
    cluster = world()
    for number, (gpus, cpu, model) in enumerate(nodes):
        cluster.node(f"n{number}", gpus, cpu=cpu, gpu_model=model)
    for number, (requested_gpus, cpu, models) in enumerate(requests):
        ask = role("r", ask=request(requested_gpus, cpu=cpu), gpu_models=models)
        cluster.queued(f"w{number:02}", "a", roles=(ask,))
    return cluster


@on_random_clusters(20)
@given(NODES, st.lists(REQUESTS, min_size=1, max_size=14), st.randoms(use_true_random=False))
def test_incremental_fragmentation_losses_equal_recomputed_losses(
    nodes: list[tuple[int, int, str]], requests: list[tuple[float, int, tuple[str, ...]]], chance: Random
) -> None:
    (board,) = Layout(mixed_cluster(nodes, requests).snapshot()).boards.values()
    parts = [(gang, part) for gang in board.gangs.values() for part in gang.parts]
    for gang, part in parts:
        mark, slot = board.log_position(), pick_slot(board, part, UsableCapacity.NOW)
        afresh = Fragmentation(board.nodes, RequestMix({}))
        afresh._mix = board.fragmentation._mix
        afresh._update_losses(afresh._open.nonzero()[0])
        board.nodes.touched = board.fragmentation._touched
        assert list(afresh.nodes_best_first(part, None)) == list(
            board.fragmentation.nodes_best_first(part, None)
        )
        if slot is not None:
            board.place_pod(gang, part, 0, slot)
            if chance.random() < 0.3:
                board.rewind(mark)


@on_random_clusters(20)
@given(NODES, st.lists(REQUESTS, min_size=1, max_size=14))
def test_fragmentation_strategy_places_every_workload_that_binpack_places(
    nodes: list[tuple[int, int, str]], requests: list[tuple[float, int, tuple[str, ...]]]
) -> None:
    # Both strategies place the workloads one by one.
    (board,) = Layout(mixed_cluster(nodes, requests).snapshot()).boards.values()
    packed = replace(board.pool, node_strategy=Strategy.BINPACK, device_strategy=Strategy.BINPACK)
    for gang in board.gangs.values():
        slot = pick_slot(board, gang.parts[0], UsableCapacity.NOW)
        counting, board.pool = board.pool, packed
        other = pick_slot(board, gang.parts[0], UsableCapacity.NOW)
        board.pool = counting
        assert (slot is None) == (other is None)
        if slot is not None:
            board.place_pod(gang, gang.parts[0], 0, slot)
            assert min(board.nodes.devices[slot.node], default=0) >= 0 <= board.nodes.cpu[slot.node]
