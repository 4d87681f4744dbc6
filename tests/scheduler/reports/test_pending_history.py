"""Tests for the history of pending reasons."""

from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from projects.models import Quota, Workload
from projects.services import workloads
from scheduler.reports.explanations import writer as explanations
from scheduler.reports.explanations.pending_history import in_all, pending_history
from tests.scheduler.stage import NOON, Stage

TWO = [{"name": "worker", "replicas": 2, "gpu": 1}]


def story(workload: Workload) -> list[tuple[str, int, int | None]]:
    """Return each reason with its start and end in seconds after noon."""
    workload.refresh_from_db()
    return [
        (each.reason, _second(each.since), None if each.until is None else _second(each.until))
        for each in pending_history(workload)
    ]


def _second(at) -> int:
    return round((at - NOON).total_seconds())


def limit(stage: Stage, gpus: int | None) -> None:
    Quota.objects.filter(project=stage.cast.vision).update(
        limit_gpu_milli=None if gpus is None else gpus * 1000
    )


def test_each_change_of_the_main_reason_is_recorded_until_the_start(stage: Stage) -> None:
    first = stage.submit("first", roles=TWO, preemptible=False)
    stage.submit("second", roles=TWO, preemptible=False)
    stage.tick(2)
    third = stage.submit("third")
    stage.tick(1, seconds=60)
    begun = _second(Workload.objects.get(pk=third.pk).explained_at)
    assert story(third) == [("OverFairShare", begun, None)]
    stage.tick(3, seconds=10)
    assert story(third) == [("OverFairShare", begun, None)], "nothing changed, nothing is added"
    limit(stage, 4)
    stage.tick(1, seconds=30)
    changed = begun + 90
    assert story(third) == [("OverFairShare", begun, changed), ("ProjectLimit", changed, None)]
    limit(stage, None)
    stage.finish(first)
    stage.tick(2, seconds=1)
    assert stage.phase(third) in ("starting", "running")
    assert story(third) == [("OverFairShare", begun, changed), ("ProjectLimit", changed, begun + 120)]


def test_requeued_workload_gets_a_new_row_with_the_same_reason(stage: Stage) -> None:
    stage.submit("first", roles=TWO, preemptible=False)
    stage.submit("second", roles=TWO, preemptible=False)
    waits = stage.submit("waits")
    stage.tick(2, seconds=5)
    ((reason, since, until),) = story(waits)
    assert until is None
    workloads.suspend(acting=stage.cast.alice, workload=waits, now=stage.clock.now())
    ended = _second(stage.clock.now())
    stage.tick(1, seconds=100)
    assert story(waits) == [(reason, since, ended)]
    workloads.resume(acting=stage.cast.alice, workload=waits, now=stage.clock.now())
    again = _second(stage.clock.now())
    stage.tick(1)
    assert story(waits) == [(reason, since, ended), (reason, again, None)]


def test_next_scheduler_continues_the_history(stage: Stage) -> None:
    stage.submit("first", roles=TWO, preemptible=False)
    stage.submit("second", roles=TWO, preemptible=False)
    waits = stage.submit("waits")
    stage.tick(2, seconds=5)
    before = story(waits)
    stage.loop = stage.new_loop("first")
    stage.tick(2, seconds=5)
    assert story(waits) == before


def test_only_the_latest_rows_are_kept(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explanations, "MOST_REASONS", 3)
    stage.submit("first", roles=TWO, preemptible=False)
    stage.submit("second", roles=TWO, preemptible=False)
    waits = stage.submit("waits")
    for turn in range(7):
        limit(stage, None if turn % 2 else 4)
        stage.tick(1, seconds=10)
    rows = story(waits)
    assert len(rows) == 3
    assert [until for _, _, until in rows] == [rows[1][1], rows[2][1], None]
    assert {reason for reason, _, _ in rows} == {"OverFairShare", "ProjectLimit"}
    entries = in_all(pending_history(waits), stage.clock.now())
    assert sum((lasted for _, lasted in entries), timedelta()) == timedelta(seconds=30)


def test_cycle_without_changes_writes_no_workload(stage: Stage) -> None:
    stage.submit("first", roles=TWO, preemptible=False)
    stage.submit("second", roles=TWO, preemptible=False)
    stage.submit("waits")
    stage.tick(3, seconds=5)
    with CaptureQueriesContext(connection) as queries:
        stage.tick(1)
    assert not [each["sql"] for each in queries if "SET explanation" in each["sql"]]
