"""Tests that replayed cycles lead to the same decisions."""

import json
import zlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from django.test import Client
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from berth.core.errors import Conflict
from projects.models import Pod, Project, Workload
from scheduler.engine.decide import decide
from scheduler.engine.model import Snapshot
from scheduler.loop.engine_version import engine_version
from scheduler.loop.snapshot_codec import SnapshotEncoder, UnreadableSnapshot, decode_snapshot
from scheduler.loop.snapshots import compress_document, compress_in_parts, load_snapshot
from scheduler.models import Cycle
from scheduler.reports import replay as replaying
from scheduler.reports.replay import replay
from scheduler.simulator import load
from tests.engine.reference.clusters import clusters
from tests.scheduler.stage import Stage

EXAMPLES = Path(__file__).resolve().parents[3] / "examples" / "scenarios"


def unsaved_cycle(snapshot: Snapshot) -> Cycle:
    cycle = Cycle(pk=7, epoch=1, trigger="tick", engine=engine_version())
    cycle.snapshot = compress_document(snapshot, decide(snapshot))
    return cycle


def replay_all() -> Iterator[replaying.ReplayResult]:
    for cycle in Cycle.objects.filter(snapshot__isnull=False).order_by("pk"):
        yield replay(cycle)


def test_every_cycle_of_a_busy_day_replays_identically(stage: Stage) -> None:
    cast = stage.cast
    stage.quota(cast.product, 2)
    stage.quota(cast.ads, 2)
    Project.objects.create(name="product", department=cast.product)  # a project named like its department
    stage.submit("whole", roles=[{"name": "worker", "replicas": 3, "gpu": 1}])
    stage.submit("half", roles=[{"name": "worker", "replicas": 1, "gpu": 0.5}])
    stage.submit("elastic", cast.speech, roles=[{"name": "w", "min": 1, "max": 3, "gpu": 1}])
    stage.tick(3, seconds=20)
    stage.submit("later", after=[{"workload": "whole"}])
    stage.submit("rank", cast.ads, roles=[{"name": "worker", "replicas": 2, "gpu": 1}], max_runtime=300)
    stage.tick(2, seconds=20)
    broken = stage.submit("broken", cast.search)
    Workload.objects.filter(pk=broken.pk).update(spec={"name": "broken", "colour": "red"})
    stage.submit("firm", priority=120)
    stage.cast.pool.nodes.filter(ordinal=1).update(state="cordoned")
    stage.tick(2, seconds=70)
    Pod.objects.filter(state="stopping").update(since=stage.clock.now())
    type(stage.cast.pool).objects.update(paused=True, fairshare_mode="time_based", half_life=600)
    stage.tick(3, seconds=90)
    again = list(replay_all())
    assert len(again) >= 6
    assert any(result.bundles for result in again)
    assert any(result.pending for result in again)
    for result in again:
        assert result.identical, result.differences
        assert result.summary.endswith("with the same engine version.")
    client = Client()
    client.force_login(cast.alice.user)
    page = client.post(f"/decisions/{again[-1].cycle}/replay").content.decode()
    assert again[-1].summary in page


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.stem)
def test_cycles_of_every_scenario_replay_identically(path: Path) -> None:
    assert replay(unsaved_cycle(load(path).snapshot)).differences == []


@settings(
    max_examples=6, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
)
@given(document=clusters())
def test_cycles_of_random_clusters_replay_identically(document: dict[str, Any]) -> None:
    assert replay(unsaved_cycle(load(document).snapshot)).identical


@settings(
    max_examples=6, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
)
@given(document=clusters(time_based=True))
def test_stored_snapshot_is_restored_unchanged(document: dict[str, Any]) -> None:
    snapshot = load(document).snapshot
    assert decode_snapshot(json.loads(SnapshotEncoder().encode(snapshot))) == snapshot


@settings(
    max_examples=6, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
)
@given(document=clusters(), chance=st.randoms(use_true_random=False))
def test_incremental_snapshot_equals_a_full_snapshot(document: dict[str, Any], chance: Random) -> None:
    snapshot, texts = load(document).snapshot, SnapshotEncoder()
    for turn in range(4):
        plan = decide(snapshot)
        assert compress_document(snapshot, plan, texts) == compress_document(snapshot, plan)
        stay = [workload for workload in snapshot.workloads if chance.random() < 0.8]
        workloads = [replace(w, priority=turn) if chance.random() < 0.3 else w for w in stay]
        nodes = [replace(n, cpu=n.cpu + 1) if chance.random() < 0.3 else n for n in snapshot.nodes]
        snapshot = replace(snapshot, workloads=tuple(workloads), nodes=tuple(nodes))


def test_snapshot_from_a_different_engine_version_is_rejected() -> None:
    snapshot = json.loads(SnapshotEncoder().encode(load(min(EXAMPLES.glob("*.yaml"))).snapshot))
    with pytest.raises(UnreadableSnapshot):
        decode_snapshot({**snapshot, "moons": 1})
    cycle = Cycle(pk=1, snapshot=zlib.compress(json.dumps({"snapshot": {"moons": 1}}).encode()))
    with pytest.raises(Conflict, match="cannot read the cycle's snapshot"):
        replay(cycle)


def test_replay_with_a_different_engine_version_names_that_version(monkeypatch: pytest.MonkeyPatch) -> None:
    cycle = unsaved_cycle(load(min(EXAMPLES.glob("*.yaml"))).snapshot)
    monkeypatch.setattr(replaying, "engine_version", lambda: "9.9.9+0123456789")
    again = replay(cycle)
    assert again.identical
    assert again.summary.endswith(f"with engine 9.9.9+0123456789 instead of {engine_version()}.")


def test_replay_differences_are_printed(stage: Stage) -> None:
    stage.submit("train")
    stage.tick()
    cycle = Cycle.objects.exclude(snapshot=None).order_by("pk")[0]
    document = json.loads(zlib.decompress(bytes(cycle.snapshot or b"")))
    document["decided"]["bundles"][0]["steps"][0][4] = "local-9"
    document["decided"]["pending"]["vision/ghost"] = [1, "Fragmented"]
    document["decided"]["shares"]["vision on local"] = [1, 2, 3]
    cycle.snapshot = zlib.compress(json.dumps(document).encode())
    again = replay(cycle)
    assert not again.identical
    text = "\n".join(again.differences)
    assert "then only: start for vision/train on local: place vision/train worker-0 on local-9" in text
    assert "now only: start for vision/train on local" in text
    assert "vision/ghost: then has queue position 1 (Fragmented); now is not pending" in text
    assert "fair share of vision on local: then [1, 2, 3]; now [" in text
    assert again.summary.startswith(f"Replay of cycle {cycle.pk} differs in 4 places")


def test_cycle_with_a_deleted_snapshot_cannot_be_replayed() -> None:
    with pytest.raises(Conflict, match="is not stored"):
        replay(Cycle(pk=1, snapshot=None))


def test_snapshot_is_stored_outside_the_commit_transaction(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Compression takes as long as the decision, so no lock must be held during it.
    from django.db import connection

    from scheduler.loop import cycle_record

    inside: list[bool] = []

    def pack_and_record(*arguments: Any) -> Iterator[bool]:
        inside.append(connection.in_atomic_block)
        return compress_in_parts(*arguments)

    monkeypatch.setattr(cycle_record, "compress_in_parts", pack_and_record)
    stage.submit()
    stage.tick()
    assert inside == [False]
    output = load_snapshot(Cycle.objects.order_by("-pk")[0])
    assert output is not None
    assert [workload.name for workload in output.snapshot.workloads] == ["vision/train-1"]
