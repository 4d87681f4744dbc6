"""Tests that idle ticks and starts run few statements, and that idle cycles are not recorded again."""

import pytest

from berth.db.leader import TIMEOUT
from projects.models import Phase, Project, Workload
from scheduler.loop.cycle_record import RECORD_EVERY
from scheduler.loop.dispatch import record_reports
from scheduler.models import Cycle, QueueStatus
from tests.scheduler.stage import Stage
from tests.scheduler.statements import Counts, counted

TICK_MAX, RECONCILE_MAX = 14, 8  # maximum number of statements; the pool's listing of nodes is not due
START_MAX, REPORT_MAX = 31, 12


def statements(stage: Stage) -> Counts:
    """Return the statements of a tick and its reconcile pass. The pool has already listed its nodes."""
    stage.tick(2)
    stage.clock.advance(1)
    counts: Counts = {}
    with counted(counts, "tick"):
        stage.loop.tick(TIMEOUT, reconcile=False)
    with counted(counts, "reconcile"):
        assert [*stage.loop.reconcile_steps()]
    return counts


def test_idle_tick_and_reconcile_pass_run_few_statements(stage: Stage) -> None:
    counts = statements(stage)
    assert counts["tick"] <= TICK_MAX, counts
    assert counts["reconcile"] <= RECONCILE_MAX, counts


def test_starting_a_workload_runs_few_statements(stage: Stage) -> None:
    for number in range(2):  # the first start composes some statements and reads rows for the first time
        stage.submit(f"train-{number}", roles=[{"name": "worker", "replicas": 1, "gpu": 1}])
        counts: Counts = {}
        with counted(counts, "start"):
            stage.loop.tick("wake", reconcile=False)
        with counted(counts, "report"):
            record_reports(stage.clock.now(), stage.loop.context)
    assert Workload.objects.filter(phase=Phase.RUNNING).count() == 2
    assert counts["start"] <= START_MAX, counts
    assert counts["report"] <= REPORT_MAX, counts


@pytest.mark.heavy
def test_idle_cycle_is_recorded_once_per_minute(stage: Stage) -> None:
    statements(stage)
    before = Cycle.objects.count()
    stage.tick(2)
    assert Cycle.objects.count() == before
    stage.clock.advance(RECORD_EVERY.total_seconds())
    stage.tick()
    assert Cycle.objects.count() == before + 1


@pytest.mark.heavy
def test_new_project_is_recorded_in_the_next_idle_cycle(stage: Stage) -> None:
    statements(stage)
    project = Project.objects.create(department=stage.cast.vision.department, name="robotics")
    stage.tick()
    assert QueueStatus.objects.filter(project=project, pool=stage.cast.pool).exists()
