"""What happens between two cycles of a simulation."""

from typing import Any

import pytest

from scheduler.engine.backoff import backoff_seconds
from scheduler.simulator import load, play, simulate


def cluster(*workloads: dict[str, Any], cycle_seconds: int = 10, **pool: Any) -> dict[str, Any]:
    """One node of 4 GPUs; the owner may have all of it, the guest what is left."""
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
def test_work_ends_in_the_first_cycle_after_its_time(cycle_seconds: int, running: int) -> None:
    document = cluster(job("a", runtime_seconds=25), cycle_seconds=cycle_seconds)
    assert phases(document, "a", running + 1) == ["running"] * running + ["completed"]


def test_nothing_runs_longer_than_it_may() -> None:
    document = cluster(job("a", runtime_seconds=1000, max_runtime=30))
    assert phases(document, "a", 4) == ["running", "running", "running", "completed"]


def test_the_next_starts_in_the_cycle_in_which_the_first_has_ended() -> None:
    document = cluster(job("a", runtime_seconds=20), job("b", runtime_seconds=20))
    assert phases(document, "b", 5) == ["pending", "pending", "running", "running", "completed"]


def test_who_gave_way_stops_before_the_other_starts_and_begins_anew() -> None:
    """The guest loses what it had done: its whole time is before it again."""
    guest = job("g", "guest", runtime_seconds=100, pods=[{"node": "n", "started": "2025-12-31T23:59:00Z"}])
    document = cluster(guest, job("o", runtime_seconds=30))
    assert phases(document, "o", 6) == ["reserved", *["running"] * 3, "completed", "completed"]
    assert phases(document, "g", 6) == ["stopping", *["pending"] * 3, "running", "running"]
    assert phases(document, "g", 15)[-2:] == ["running", "completed"]


def test_each_time_it_gives_way_it_holds_back_twice_as_long() -> None:
    guest = job("g", "guest", pods=[{"node": "n", "started": "2025-12-31T00:00:00Z"}])
    owners = [job(f"o{n}", runtime_seconds=1) for n in range(2)]
    owners[1]["depends_on"] = ["o0"]
    played = play(load(cluster(guest, *owners, cycle_seconds=1)), cycles=30)
    waits = {}
    for snapshot, _ in played.cycles:
        workload = next(w for w in snapshot.workloads if w.name == "g")
        if workload.backoff_until is not None:
            waits.setdefault(workload.preemptions, workload.backoff_until - snapshot.now)
    assert waits[1] == backoff_seconds(1) - 1  # seen one second later


def test_promises_of_earlier_cycles_start_once_their_place_is_free() -> None:
    stuck = job("s", "guest", pods=[{"node": "n", "state": "stopping"}])
    document = cluster(stuck, job("o"))
    assert phases(document, "o", 2) == ["reserved", "running"]


def test_a_run_until_stable_ends_when_nothing_is_known_to_happen() -> None:
    document = cluster(job("a", runtime_seconds=50), job("b", runtime_seconds=50), job("c", gpus=8))
    answer = simulate(document, until_stable=True)
    assert {name: told["phase"] for name, told in answer["workloads"].items()} == {
        "a": "completed",
        "b": "completed",
        "c": "pending",
    }
    assert len(answer["cycles"]) <= 12


@pytest.mark.shows("RAI-80")
def test_a_short_burst_of_another_does_not_push_steady_users_aside() -> None:
    """Steady held two of four for long; a burst takes its half at most, and steady keeps what is its due."""
    document = cluster(
        *(job(f"s{n}", "steady", 1, runtime_seconds=600) for n in range(6)),
        *(job(f"b{n}", "burst", 1, runtime_seconds=60) for n in range(4)),
        fairshare={"mode": "time_based", "half_life": 600, "k": 1.0},
    )
    document["projects"] = [
        {"name": name, "department": "d", "quotas": {"default": {"gpu": 0}}} for name in ("steady", "burst")
    ]
    played = play(load(document), cycles=30)
    for snapshot, _ in played.cycles[1:]:
        held = sum(
            pod.state == "running" for w in snapshot.workloads if w.project == "steady" for pod in w.pods
        )
        assert held >= 2
