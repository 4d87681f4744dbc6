"""Tests that stored cycle inputs are complete and are kept within limits of time and size."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given

from scheduler.engine.decide import decide
from scheduler.engine.model import Node, Pod, Request, Role, RoleGroup, Snapshot, Workload
from scheduler.loop.snapshot_codec import SnapshotEncoder, decode_snapshot, to_json
from scheduler.loop.snapshots import (
    CYCLE_RETENTION,
    SNAPSHOT_RETENTION,
    drop_expired_cycles,
    plan_document,
)
from scheduler.models import Cycle
from scheduler.simulator import load
from tests.engine.reference.clusters import clusters
from tests.engine.test_invariants import on_random_clusters

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)
TREE = RoleGroup("all", (Role("worker", 1, 1, Request(gpu=1000, devices=1, cpu=2000)),), 1)
WORKLOAD = Workload("vision/0", "vision", TREE, ("local",))


def cycle(age: timedelta, size: int = 100) -> int:
    return Cycle.objects.create(at=NOON - age, epoch=1, trigger="tick", snapshot=b"x" * size).pk


def with_scenario() -> set[int]:
    return set(Cycle.objects.filter(snapshot__isnull=False).values_list("pk", flat=True))


@pytest.mark.django_db
def test_old_snapshots_are_deleted_earlier_than_their_cycles() -> None:
    cycle(CYCLE_RETENTION + timedelta(hours=1))
    bare = cycle(SNAPSHOT_RETENTION + timedelta(hours=1))
    young = cycle(timedelta(hours=1))
    drop_expired_cycles(NOON)
    assert set(Cycle.objects.values_list("pk", flat=True)) == {bare, young}
    assert with_scenario() == {young}


@pytest.mark.django_db
def test_oldest_snapshots_beyond_the_size_limit_are_deleted() -> None:
    made = [cycle(timedelta(minutes=30 - i)) for i in range(5)]
    assert drop_expired_cycles(NOON, max_bytes=250) == 3
    assert with_scenario() == set(made[-2:])
    assert Cycle.objects.count() == 5


def test_snapshot_encoding_is_identical_with_and_without_a_cache() -> None:
    encoder = SnapshotEncoder()
    for pods in ((), (Pod("worker", 0, "n0", (1,)),)):
        workloads = tuple(
            replace(WORKLOAD, name=f"vision/{number}", priority=number, pods=pods) for number in range(3)
        )
        snapshot = Snapshot(0, (), (Node("n0", "local", gpus=2),), (), workloads)
        encoder.encode_part(snapshot, 2)
        text = encoder.encode(snapshot)
        assert (
            json.loads(text)
            == json.loads(SnapshotEncoder().encode(snapshot))
            == json.loads(to_json(snapshot))
        )
        assert decode_snapshot(json.loads(text)) == snapshot


@on_random_clusters(7)
@given(document=clusters(quiet=True))
def test_stored_queue_positions_match_the_plan(document: dict[str, Any]) -> None:
    snapshot = load(document).snapshot
    stored = plan_document(decide(snapshot))["pending"]  # before the plan's rejections are expanded
    assert stored == {
        rejection.workload: [rejection.position, *(str(blocker.reason) for blocker in rejection.blockers)]
        for rejection in decide(snapshot).rejections
    }
