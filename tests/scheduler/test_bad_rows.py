"""Tests that a broken row, machine or cycle does not affect the rest."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from django.db import OperationalError

from projects.models import Phase, Workload
from scheduler.engine.model import Snapshot
from scheduler.engine.plan import Plan
from scheduler.loop import cycle_record
from scheduler.loop.cycle_record import CycleRun
from scheduler.loop.dispatch.lifecycle import gangs
from scheduler.loop.dispatch.lifecycle.verdict import GangFacts
from scheduler.models import Cycle
from tests.scheduler.stage import NOON, Stage, decide_by
from tests.scheduler.tick_work.statements import ONE_CPU


def test_invalid_stored_document_is_reported_without_changing_its_workload(stage: Stage) -> None:
    broken, fine = stage.submit("broken"), stage.submit("fine")
    Workload.objects.filter(pk=broken.pk).update(spec={"name": "broken", "colour": "blue"})
    stage.tick(2)
    assert stage.phase(fine) == Phase.RUNNING
    assert stage.phase(broken) == Phase.PENDING
    assert broken.reason == "Misconfigured"
    assert "colour" in broken.message


def test_gang_that_cannot_be_evaluated_does_not_block_other_gangs(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = stage.submit("first"), stage.submit("second")
    stage.tick(2)
    build_gang_facts = gangs.build_gang_facts

    def fail_for_one_workload(gang: gangs.Gang) -> GangFacts:
        if gang.workload.name == "first":
            raise ValueError("an unexpected row")
        return build_gang_facts(gang)

    monkeypatch.setattr(gangs, "build_gang_facts", fail_for_one_workload)
    stage.finish(first)
    stage.finish(second)
    stage.tick(2)
    assert [stage.phase(row) for row in (first, second)] == [Phase.RUNNING, Phase.COMPLETED]
    assert "an unexpected row" in " ".join(Cycle.objects.order_by("-id")[0].notes)
    monkeypatch.undo()
    stage.tick()
    assert stage.phase(first) == Phase.COMPLETED


def test_pod_report_rejected_by_the_database_does_not_block_other_reports(stage: Stage) -> None:
    first, second = stage.submit("first"), stage.submit("second")
    stage.tick(2)
    for pod in stage.pods(first):
        stage.runtime.end(str(pod.pk), exit_code=1, message="NUL \0 is not text")
    stage.finish(second)
    stage.tick(2)
    assert [stage.phase(row) for row in (first, second)] == [Phase.RUNNING, Phase.COMPLETED]
    notes = " ".join(Cycle.objects.order_by("-id")[0].notes)
    assert all(f"The report of pod {pod.pk} could not be recorded" in notes for pod in stage.pods(first))


def test_failed_cycle_is_logged_and_running_workloads_still_end(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    workload = stage.submit()
    stage.tick(2)

    def fail(snapshot: Snapshot) -> Plan:
        raise RuntimeError("no idea")

    decide_by(monkeypatch, fail)
    stage.finish(workload)
    stage.tick(2)
    assert stage.phase(workload) == Phase.COMPLETED
    assert "no idea" in caplog.text


def test_unrecorded_cycle_is_recorded_by_the_next_attempt(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail_before_end(name: str) -> None:
        if name == "cycle.before_end":
            raise ValueError("the row was rejected")

    with monkeypatch.context() as patched:
        patched.setattr(cycle_record, "crash_point", fail_before_end)
        stage.tick()
    assert not Cycle.objects.exists()
    stage.tick()
    assert "the row was rejected" in " ".join(note for row in Cycle.objects.all() for note in row.notes)
    first = Cycle.objects.order_by("at", "id")[0]
    assert first.at == NOON


def test_cycle_that_cannot_be_recorded_does_not_block_earlier_cycles(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(3):
        stage.submit(f"train-{number}", roles=ONE_CPU)
        stage.loop.tick(reconcile=False)
    first, second, _ = stage.loop._runs
    second.outcome.applied[0] = replace(second.outcome.applied[0], message="NUL \0 is not text")
    assert [*stage.loop.reconcile_steps()]
    assert f"the cycle at {second.view.at} could not be recorded" in caplog.text
    plans = dict(Cycle.objects.values_list("pk", "plan"))
    assert plans[first.record.pk]
    assert not plans[second.record.pk]


def test_earlier_cycles_are_recorded_again_after_a_failed_transaction(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lose_connection(runs: Sequence[tuple[CycleRun, Sequence[str]]]) -> None:
        save(runs)
        raise OperationalError("the connection was lost")

    save, context, memory = cycle_record._save_outcomes, stage.loop.context, stage.loop.memory
    stage.loop.tick(reconcile=False)
    stage.submit(roles=ONE_CPU)
    stage.loop.tick(reconcile=False)
    runs = stage.loop._runs
    assert [run.record.pk is None for run in runs] == [True, False], "only cycles with bundles have a row yet"
    with monkeypatch.context() as patched:
        patched.setattr(cycle_record, "_save_outcomes", lose_connection)
        with pytest.raises(OperationalError):
            cycle_record.record_earlier_cycles(runs, context, memory, ["note"])
    assert not any(run.written for run in runs)
    assert cycle_record.record_earlier_cycles(runs, context, memory, ["note"])
    assert [list(row.notes) for row in Cycle.objects.order_by("at", "pk")] == [["note"], ["note"]]
