"""Tests for the queue list and the eviction matrix of pools over REST."""

import pytest

from projects.models import Workload
from tests import factories as make
from tests.api.conftest import Caller
from tests.cast import Cast


def pending(cast: Cast, name: str, position: int | None, project: str = "vision") -> Workload:
    explanation = None if position is None else {
        "pool": "local", "queue_position": position,
        "ordering": [f"priority 50, number {position}"], "blockers": [],
        "expected_start": "2026-06-01T12:00:00+00:00",
    }  # fmt: skip
    return make.workload(getattr(cast, project), name, explanation=explanation, reason="WaitingForCapacity")


def test_queue_is_paginated_by_position(cast: Cast, alice: Caller) -> None:
    for name, position in (("c", 3), ("a", 1), ("new", None), ("b", 2)):
        pending(cast, name, position)
    first = alice.get("node-pools/local/queue", limit="2").json()
    assert (first["workloads"], first["gpus"]) == (4, 4.0)
    assert [item["name"] for item in first["items"]] == ["a", "b"]
    assert first["items"][0]["ordering"] == ["priority 50, number 1"]
    assert first["items"][0]["expected_start"] == "2026-06-01T12:00:00Z"
    second = alice.get("node-pools/local/queue", limit="2", cursor=first["next"]).json()
    assert [(item["name"], item["queue_position"]) for item in second["items"]] == [("c", 3), ("new", None)]
    assert second["next"] is None


def test_new_workloads_are_listed_last_in_order_of_priority_and_queue_time(cast: Cast, alice: Caller) -> None:
    pending(cast, "queued", 1)
    for name, priority, minutes in (("young", 50, 1), ("old", 50, 9), ("urgent", 90, 2)):
        submitted_at = make.ago(minutes=minutes)
        make.workload(cast.vision, name, pools=["local"], priority=priority, submitted_at=submitted_at)
    names, cursor = list[str](), dict[str, str]()
    for _ in range(4):
        page = alice.get("node-pools/local/queue", limit="1", **cursor).json()
        names += [item["name"] for item in page["items"]]
        cursor = {"cursor": page["next"]}
    assert names == ["queued", "urgent", "old", "young"]


@pytest.mark.heavy
def test_workload_in_the_reserved_phase_is_listed_first_without_a_position(cast: Cast, alice: Caller) -> None:
    pending(cast, "first", 1)
    Workload.objects.filter(pk=pending(cast, "reserved", 4).pk).update(phase="reserved")
    items = alice.get("node-pools/local/queue").json()["items"]
    assert [(item["name"], item["phase"], item["queue_position"]) for item in items] == [
        ("reserved", "reserved", None),
        ("first", "pending", 1),
    ]
    workload = f"workloads/{items[0]['workload']}"
    assert alice.get(workload).json()["queue_position"] is None
    assert alice.get(f"{workload}/explain").json()["queue_position"] is None


def test_workloads_of_other_projects_are_counted_but_not_listed(cast: Cast, dave: Caller) -> None:
    pending(cast, "theirs", 1, "ads")
    pending(cast, "ours", 2)
    queue = dave.get("node-pools/local/queue").json()
    assert (queue["workloads"], [item["name"] for item in queue["items"]]) == (2, ["ours"])


def test_unknown_pool_and_invalid_cursor_are_rejected(alice: Caller) -> None:
    assert alice.get("node-pools/none/queue").status_code == 404
    assert alice.get("node-pools/local/queue", cursor="abc").status_code == 422


@pytest.mark.heavy
def test_eviction_matrix_counts_only_evictions_that_match_the_filter(
    cast: Cast, alice: Caller, dave: Caller
) -> None:
    ours, theirs, hidden = (make.workload(p, "w") for p in (cast.vision, cast.ads, cast.search))
    make.eviction(ours, theirs, cast.pool)
    make.eviction(hidden, theirs, cast.pool, kind="preempt")
    both = alice.get("evictions/matrix").json()["pairs"]
    assert [(pair["victim_project"], pair["preemptor_project"]) for pair in both] == [
        ("search", "ads"),
        ("vision", "ads"),
    ]
    assert [
        pair["victim_project"] for pair in alice.get("evictions/matrix", kind="preempt").json()["pairs"]
    ] == ["search"]
    assert [pair["victim_project"] for pair in dave.get("evictions/matrix").json()["pairs"]] == ["vision"]
    first = alice.get("evictions/matrix", limit="1").json()
    assert (len(first["pairs"]), first["omitted"]) == (1, 1)
    assert alice.get("evictions/matrix").json()["omitted"] == 0
    assert alice.get("evictions/matrix", limit="501").status_code == 422
