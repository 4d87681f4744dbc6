"""Tests that a simulation stops in a steady state, and that continuing would change nothing.

`BERTH_RANDOM_CLUSTERS=20000` sets the number of clusters (default: a few dozen).
"""

import json
from copy import deepcopy
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.simulator import load, play_scenario, run, simulate
from tests.engine.reference.clusters import clusters
from tests.engine.test_invariants import on_random_clusters

Document = dict[str, Any]
UNLIMITED = 99_999_999
PENDING = {"name": "second", "project": "a", "roles": [{"gpu": 3}]}


def cluster(*more: Document, pool: Document | None = None, **settings: Any) -> Document:
    return {
        "format": "berth.scenario/1",
        "pools": [{"name": "default", **(pool or {})}],
        "nodes": [{"name": "n", "gpus": 4}],
        "departments": [{"name": "d", "quotas": {"default": {"gpu": 4}}}],
        "projects": [{"name": "a", "department": "d", "quotas": {"default": {"gpu": 4}}}],
        "workloads": [{"name": "first", "project": "a", "roles": [{"gpu": 2}]}, *deepcopy(more)],
        **settings,
    }


def test_unlimited_simulation_ends_in_a_steady_state() -> None:
    played = play_scenario(load(cluster(PENDING)), cycles=UNLIMITED)
    assert len(played.cycles) + played.skipped == UNLIMITED
    assert len(played.cycles) < 10


def test_skipping_steady_cycles_does_not_change_the_time_of_the_last_cycle() -> None:
    played = play_scenario(load(cluster(PENDING, cycle_seconds=7)), cycles=1000)
    first, last = played.cycles[0][0].now, played.cycles[-1][0].now
    assert last - first == 999 * 7


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("pool", "workload", "until"),
    [
        ({}, {"runtime_seconds": 100}, 100),
        ({}, {"backoff_until": 1_800_000_100}, 100),
        ({"reservation_after": 100}, {}, 100),
        ({}, {"preemption_delay": 100}, 100),
        ({"reclaim_min_runtime": 100}, {}, 100),
        ({"fairshare": {"mode": "time_based", "half_life": 60}}, {}, 180),
        ({"fairshare": {"mode": "time_based", "window": 60, "tumbling": True}}, {}, 180),
    ],
    ids=[
        "a runtime",
        "a backoff",
        "a reservation",
        "a delay",
        "a minimum runtime",
        "decaying usage",
        "a calendar",
    ],
)
def test_cluster_with_a_running_timer_is_not_steady(pool: Document, workload: Document, until: int) -> None:
    now = 1_800_000_000
    document = cluster(PENDING, {**PENDING, "name": "third"}, pool=pool, now=now)
    for each in document["workloads"]:
        each["submitted"] = now
    document["workloads"][0] |= workload
    played = play_scenario(load(document), cycles=200)
    assert played.cycles[-2][0].now - now >= until


def test_cluster_without_demand_is_steady_regardless_of_its_usage() -> None:
    pool = {"fairshare": {"mode": "time_based", "half_life": 60}}
    assert len(play_scenario(load(cluster(pool=pool)), cycles=UNLIMITED).cycles) < 10


def test_idle_cycles_are_listed_only_if_there_are_few() -> None:
    assert len(simulate(cluster(PENDING), cycles=500)["cycles"]) == 500
    assert len(simulate(cluster(PENDING), cycles=UNLIMITED)["cycles"]) < 10


def test_simulator_output_includes_the_number_of_cycles(tmp_path: Path) -> None:
    file = tmp_path / "cluster.json"
    file.write_text(json.dumps(cluster(PENDING)))
    _, text = run(file, cycles=UNLIMITED)
    cycle_count = len(play_scenario(load(cluster(PENDING)), cycles=UNLIMITED).cycles)
    assert f"Ran {cycle_count} cycles of 99,999,999" in text
    assert "Steady state" not in run(file, cycles=2)[1]


@on_random_clusters(2)
@given(document=st.one_of(clusters(), clusters(time_based=True)), seconds=st.sampled_from([1, 60, 500]))
def test_skipped_and_simulated_steady_cycles_have_the_same_result(document: Document, seconds: int) -> None:
    document["cycle_seconds"] = seconds
    skipped = simulate(deepcopy(document), cycles=60)
    with pytest.MonkeyPatch.context() as patch:
        playing = import_module("scheduler.simulator.cycles")
        patch.setattr(playing, "is_steady_state", lambda *_: False)
        played_on = simulate(deepcopy(document), cycles=60)
    assert _comparable(skipped) == _comparable(played_on)


def _comparable(answer: Document) -> Document:
    for queues in answer["queues"].values():
        for queue in queues.values():
            queue["usage"] = {kind: round(used, 6) for kind, used in queue["usage"].items()}
    return {key: value for key, value in answer.items() if key != "seconds"}
