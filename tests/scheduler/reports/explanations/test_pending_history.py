"""Tests for the history of pending reasons."""

from datetime import datetime, timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from pools.models import NodePool
from projects.models import Quota, Workload
from projects.services import workloads
from scheduler.reports.explanations import writer as explanations
from scheduler.reports.explanations.pending_history import pending_history, total_by_reason
from tests.scheduler.stage import NOON, Stage
from tests.support.present import present

TWO = [{"name": "worker", "replicas": 2, "gpu": 1}]


def read_history(workload: Workload) -> list[tuple[str, int, int | None]]:
    workload.refresh_from_db()
    return [
        (
            reason.reason,
            _seconds_after_noon(reason.since),
            None if reason.until is None else _seconds_after_noon(reason.until),
        )
        for reason in pending_history(workload)
    ]


def _seconds_after_noon(at: datetime) -> int:
    return round((at - NOON).total_seconds())


def limit(stage: Stage, gpus: int | None) -> None:
    Quota.objects.filter(project=stage.cast.vision).update(
        limit_gpu_milli=None if gpus is None else gpus * 1000
    )


def full_size(stage: Stage) -> None:
    """Let the pool add no more nodes."""
    NodePool.objects.update(nodes_max=stage.cast.pool.nodes.count())


def test_changes_in_the_main_pending_reason_are_recorded(stage: Stage) -> None:
    full_size(stage)
    first = stage.submit("first", roles=TWO, preemptible=False)
    stage.submit("second", roles=TWO, preemptible=False)
    stage.tick(2)
    third = stage.submit("third")
    stage.tick(1, seconds=60)
    begun = _seconds_after_noon(present(Workload.objects.get(pk=third.pk).explained_at))
    assert read_history(third) == [("WouldExceedFairShare", begun, None)]
    stage.tick(3, seconds=10)
    assert read_history(third) == [("WouldExceedFairShare", begun, None)], "unchanged reasons add no entry"
    limit(stage, 4)
    stage.tick(1, seconds=30)
    changed = begun + 90
    assert read_history(third) == [("WouldExceedFairShare", begun, changed), ("ProjectLimit", changed, None)]
    limit(stage, None)
    stage.finish(first)
    stage.tick(2, seconds=1)
    assert stage.phase(third) in ("starting", "running")
    assert read_history(third) == [
        ("WouldExceedFairShare", begun, changed),
        ("ProjectLimit", changed, begun + 120),
    ]


@pytest.mark.heavy
def test_resuming_a_workload_adds_a_pending_period_with_the_same_reason(stage: Stage) -> None:
    stage.submit("first", roles=TWO, preemptible=False)
    stage.submit("second", roles=TWO, preemptible=False)
    waits = stage.submit("waits")
    stage.tick(2, seconds=5)
    ((reason, since, until),) = read_history(waits)
    assert until is None
    workloads.suspend(actor=stage.cast.alice, workload=waits, now=stage.clock.now())
    ended = _seconds_after_noon(stage.clock.now())
    stage.tick(1, seconds=100)
    assert read_history(waits) == [(reason, since, ended)]
    workloads.resume(actor=stage.cast.alice, workload=waits, now=stage.clock.now())
    again = _seconds_after_noon(stage.clock.now())
    stage.tick(1)
    assert read_history(waits) == [(reason, since, ended), (reason, again, None)]


@pytest.mark.heavy
def test_restarted_scheduler_continues_the_pending_history(stage: Stage) -> None:
    stage.submit("first", roles=TWO, preemptible=False)
    stage.submit("second", roles=TWO, preemptible=False)
    waits = stage.submit("waits")
    stage.tick(2, seconds=5)
    before = read_history(waits)
    stage.loop = stage.new_loop("first")
    stage.tick(2, seconds=5)
    assert read_history(waits) == before


def test_only_the_latest_pending_reasons_are_kept(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explanations, "MAX_REASONS", 3)
    full_size(stage)
    stage.submit("first", roles=TWO, preemptible=False)
    stage.submit("second", roles=TWO, preemptible=False)
    waits = stage.submit("waits")
    for turn in range(7):
        limit(stage, None if turn % 2 else 4)
        stage.tick(1, seconds=10)
    rows = read_history(waits)
    assert len(rows) == 3
    assert [until for _, _, until in rows] == [rows[1][1], rows[2][1], None]
    assert {reason for reason, _, _ in rows} == {"WouldExceedFairShare", "ProjectLimit"}
    entries = total_by_reason(pending_history(waits), stage.clock.now())
    assert sum((lasted for _, lasted in entries), timedelta()) == timedelta(seconds=30)


def test_cycle_without_changes_updates_no_workload(stage: Stage) -> None:
    stage.submit("first", roles=TWO, preemptible=False)
    stage.submit("second", roles=TWO, preemptible=False)
    stage.submit("waits")
    stage.tick(3, seconds=5)
    with CaptureQueriesContext(connection) as queries:
        stage.tick(1)
    assert not [query["sql"] for query in queries if "SET explanation" in query["sql"]]
