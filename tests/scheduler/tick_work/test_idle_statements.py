"""Tests that idle ticks and starts run few statements, and that idle cycles are not recorded again."""

import pytest
from django.db import connection

from berth.db.loops.leader import TIMEOUT
from projects.models import Phase, Project, Workload
from scheduler.loop import cycle_record
from scheduler.loop.cycle_record import RECORD_EVERY, RunInterval
from scheduler.loop.dispatch import record_reports
from scheduler.loop.dispatch.lifecycle.limits import DUE_LIMITS
from scheduler.models import Cycle, QueueStatus
from tests.scheduler.stage import NOON, Stage
from tests.scheduler.tick_work.statements import ONE_CPU, Counts, counted, large_node, submit_copies

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


def test_idle_ticks_and_reconcile_passes_run_few_sql_statements(stage: Stage) -> None:
    counts = statements(stage)
    assert counts["tick"] <= TICK_MAX, counts
    assert counts["reconcile"] <= RECONCILE_MAX, counts


def test_starting_a_workload_runs_few_sql_statements(stage: Stage) -> None:
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


def test_deadline_check_does_not_read_all_workloads(stage: Stage) -> None:
    submit_copies(stage, 200)
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN {DUE_LIMITS}", [NOON] * 4)
        plan = "\n".join(line for (line,) in cursor.fetchall())
    assert "using workload_deadline on projects_workload" in plan


def test_statement_count_for_recording_cycles_does_not_grow_with_their_number(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(name: str, cycles: int) -> int:
        for number in range(cycles):
            stage.submit(f"{name}-{number}", roles=ONE_CPU)
            stage.loop.tick(reconcile=False)
        recorded, counts = Cycle.objects.filter(applied=1).count(), Counts()
        with counted(counts, "record"):
            assert any([*stage.loop._record_cycles()])
        assert Cycle.objects.filter(applied=1).count() == recorded + cycles
        return counts["record"]

    large_node(stage)
    stage.tick()
    monkeypatch.setattr(cycle_record, "FREE_SIZE", 0)
    stage.loop.memory.snapshots = RunInterval(per_second=1, last=stage.clock.now())  # no snapshot is due
    run("first", 3)  # the first records compose some statements
    assert run("few", 3) == run("many", 12)
