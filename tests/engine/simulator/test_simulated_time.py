"""Tests for events between two simulation cycles."""

from typing import Any

import pytest

from scheduler.engine.backoff import backoff_seconds
from scheduler.simulator import load, play_scenario, simulate


def cluster(*workloads: dict[str, Any], cycle_seconds: int = 10, **pool: Any) -> dict[str, Any]:
    """Return one node of four GPUs, all in the owner's quota. The guest borrows them."""
    return {
        "format": "berth.scenario/1",
        "cycle_seconds": cycle_seconds,
        "pools": [{"name": "default", **pool}],
        "nodes": [{"name": "n", "gpus": 4}],
        "departments": [{"name": "d", "quotas": {"default": {"gpu": 4}}}],
        "projects": [
            {"name": "owner", "department": "d", "quotas": {"default": {"gpu": 4}}},
            {"name": "guest", "department": "d", "quotas": {"default": {"gpu": 0}}},
        ],
        "workloads": list(workloads),
    }


def job(name: str, project: str = "owner", gpus: float = 4, **more: Any) -> dict[str, Any]:
    return {"name": name, "project": project, "roles": [{"gpu": gpus}], **more}


def phases(document: dict[str, Any], name: str, cycles: int) -> list[str]:
    return [simulate(document, cycles=n)["workloads"][name]["phase"] for n in range(1, cycles + 1)]


@pytest.mark.parametrize(("cycle_seconds", "running"), [(1, 25), (10, 3), (25, 1), (100, 1)])
def test_workload_ends_in_the_first_cycle_after_its_runtime(cycle_seconds: int, running: int) -> None:
    document = cluster(job("a", runtime_seconds=25), cycle_seconds=cycle_seconds)
    assert phases(document, "a", running + 1) == ["running"] * running + ["completed"]


def test_workload_ends_at_its_maximum_runtime() -> None:
    document = cluster(job("a", runtime_seconds=1000, max_runtime=30))
    assert phases(document, "a", 4) == ["running", "running", "running", "completed"]


def test_second_workload_starts_in_the_cycle_that_ends_the_first_workload() -> None:
    document = cluster(job("a", runtime_seconds=20), job("b", runtime_seconds=20))
    assert phases(document, "b", 5) == ["pending", "pending", "running", "running", "completed"]


def test_victim_stops_before_the_preemptor_starts_and_restarts_from_scratch() -> None:
    # The guest loses its progress and has to run for its entire duration again.
    guest = job("g", "guest", runtime_seconds=100, pods=[{"node": "n", "started": "2025-12-31T23:59:00Z"}])
    document = cluster(guest, job("o", runtime_seconds=30))
    assert phases(document, "o", 6) == ["reserved", *["running"] * 3, "completed", "completed"]
    assert phases(document, "g", 6) == ["stopping", *["pending"] * 3, "running", "running"]
    assert phases(document, "g", 15)[-2:] == ["running", "completed"]


def test_backoff_doubles_with_each_eviction() -> None:
    guest = job("g", "guest", pods=[{"node": "n", "started": "2025-12-31T00:00:00Z"}])
    owners = [job(f"o{n}", runtime_seconds=1) for n in range(2)]
    owners[1]["after"] = [{"workload": "o0"}]
    played = play_scenario(load(cluster(guest, *owners, cycle_seconds=1)), cycles=30)
    waits: dict[int, int] = {}
    for snapshot, _ in played.cycles:
        workload = next(w for w in snapshot.workloads if w.name == "g")
        if workload.backoff_until is not None:
            waits.setdefault(workload.preemptions, workload.backoff_until - snapshot.now)
    assert waits[1] == backoff_seconds(1) - 1  # the next cycle starts one second later


def test_reservation_starts_once_its_devices_are_free() -> None:
    stuck = job("s", "guest", pods=[{"node": "n", "state": "stopping"}])
    document = cluster(stuck, job("o"))
    assert phases(document, "o", 2) == ["reserved", "running"]


def test_simulation_until_stable_ends_when_no_event_is_pending() -> None:
    document = cluster(job("a", runtime_seconds=50), job("b", runtime_seconds=50), job("c", gpus=8))
    answer = simulate(document, until_stable=True)
    assert {name: workload["phase"] for name, workload in answer["workloads"].items()} == {
        "a": "completed",
        "b": "completed",
        "c": "pending",
    }
    assert len(answer["cycles"]) <= 12


@pytest.mark.shows("RAI-80")
def test_short_burst_does_not_evict_the_workloads_of_a_steady_user() -> None:
    # Queue `steady` has long used two of four GPUs. A burst gets at most half; `steady` keeps its share.
    document = cluster(
        *(job(f"s{n}", "steady", 1, runtime_seconds=600) for n in range(6)),
        *(job(f"b{n}", "burst", 1, runtime_seconds=60) for n in range(4)),
        fairshare={"mode": "time_based", "half_life": 600, "k": 1.0},
    )
    document["projects"] = [
        {"name": name, "department": "d", "quotas": {"default": {"gpu": 0}}} for name in ("steady", "burst")
    ]
    played = play_scenario(load(document), cycles=30)
    for snapshot, _ in played.cycles[1:]:
        held = sum(
            pod.state == "running" for w in snapshot.workloads if w.project == "steady" for pod in w.pods
        )
        assert held >= 2
