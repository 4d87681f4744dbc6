"""Tests for dependencies between workloads in the scheduler loop."""

from typing import Any

import pytest

from berth.core.errors import Conflict
from projects.models import Event, Phase, Workload
from projects.services import arrays
from projects.services.workloads import control, edit
from scheduler.reports.explanations.workload import explain
from tests.cast import training
from tests.harness.samples import sample
from tests.scheduler.arrays.test_arrays import end, submit_array, tasks
from tests.scheduler.crashes import CrashingScheduler
from tests.scheduler.stage import Stage
from tests.scheduler.tick_work.statements import large_node

ONE = [{"name": "worker", "replicas": 1, "gpu": 1}]
ALL = [{"name": "worker", "replicas": 2, "gpu": 2}]  # roles that take all GPUs of both nodes


def running(stage: Stage, name: str, **changes: Any) -> Workload:
    workload = stage.submit(name, **{"roles": ONE, **changes})
    stage.tick(2)
    assert stage.phase(workload) == Phase.RUNNING
    return workload


def after(workload: str = "first", state: str = "completed") -> list[dict[str, str]]:
    return [{"workload": workload, "state": state}]


@pytest.mark.parametrize(
    ("state", "exit_code", "phase"),
    sample(
        [
            ("completed", 0, "running"),
            ("completed", 3, "cancelled"),
            ("failed", 3, "running"),
            ("failed", 0, "cancelled"),
            ("any", 0, "running"),
            ("any", 3, "running"),
        ],
        3,
    ),
)
def test_dependent_starts_only_if_the_required_state_is_reached(
    stage: Stage, state: str, exit_code: int, phase: str
) -> None:
    first = running(stage, "first")
    second = stage.submit("second", roles=ONE, after=after(state=state))
    stage.tick(2)
    assert (stage.phase(second), second.reason) == (Phase.PENDING, "DependencyNotMet")
    stage.finish(first, exit_code)
    stage.tick(4)
    assert stage.phase(second) == phase


def test_cancelled_dependent_workload_names_the_failed_dependency(stage: Stage) -> None:
    first = running(stage, "first")
    second = stage.submit("second", roles=ONE, after=after())
    stage.finish(first, 3)
    stage.tick(3)
    assert stage.phase(second) == Phase.CANCELLED
    assert second.reason == "DependencyNeverMet"
    assert second.message == "Cancelled because vision/first failed and can no longer complete."
    (event,) = Event.objects.filter(workload_id=second.pk, kind="cancelled")
    assert event.data["reason"] == "DependencyNeverMet"


@pytest.mark.heavy
def test_dependent_that_accepts_any_outcome_is_not_cancelled(stage: Stage) -> None:
    first = running(stage, "first")
    chain = [
        stage.submit(
            f"step-{number}", roles=ONE, after=after("first" if number == 0 else f"step-{number - 1}")
        )
        for number in range(3)
    ]
    cleanup = stage.submit("cleanup", roles=ONE, after=after("step-2", "any"))
    control.cancel(actor=stage.cast.alice, workload=first)
    stage.tick(8)
    assert [stage.phase(workload) for workload in chain] == ["cancelled"] * 3
    assert chain[0].message == "Cancelled because vision/first was cancelled and can no longer complete."
    assert stage.phase(cleanup) == Phase.RUNNING


@pytest.mark.heavy
def test_dependent_waits_for_the_resubmitted_workload_instead_of_the_failed_workload(stage: Stage) -> None:
    stage.finish(running(stage, "first"), 3)
    stage.tick(2)
    again = running(stage, "first")
    second = stage.submit("second", roles=ONE, after=after())
    stage.tick(2)
    assert stage.phase(second) == Phase.PENDING
    stage.finish(again)
    stage.tick(3)
    assert stage.phase(second) == Phase.RUNNING


@pytest.mark.heavy
def test_evicted_workload_does_not_wait_for_its_dependencies_again(stage: Stage) -> None:
    stage.finish(running(stage, "first"))
    stage.tick(2)
    second = running(stage, "second", after=after())
    stage.submit("first", roles=ONE)
    control.suspend(actor=stage.cast.alice, workload=second)
    stage.tick(3)
    control.resume(actor=stage.cast.alice, workload=second)
    stage.tick(2)
    assert (stage.phase(second), second.run) == (Phase.RUNNING, 2)


@pytest.mark.heavy
def test_pending_reason_states_phase_and_queue_position_of_the_dependency(stage: Stage) -> None:
    running(stage, "busy", roles=ALL)
    first = stage.submit("first", roles=ONE)
    second = stage.submit("second", roles=ONE, after=after())
    stage.tick()
    first.refresh_from_db()
    second.refresh_from_db()
    assert second.message == "Waiting for vision/first to complete (pending)."
    explained = explain(stage.cast.dave, second)
    assert explained.message == "Waiting for vision/first to complete (pending, queue position 1)."
    assert explained.blockers[0]["message"] == explained.message


def test_pending_reason_hides_the_state_of_another_projects_workload(stage: Stage) -> None:
    running(stage, "busy", roles=ALL)
    stage.submit("prepare", stage.cast.speech, roles=ONE)
    second = stage.submit("second", roles=ONE, after=after("speech/prepare"))
    stage.tick()
    second.refresh_from_db()
    hidden = "Waiting for speech/prepare to complete."
    assert second.message == hidden
    assert explain(stage.cast.dave, second).message == hidden
    assert explain(stage.cast.bob, second).message == (
        "Waiting for speech/prepare to complete (pending, queue position 1)."
    )


@pytest.mark.heavy
def test_workload_can_depend_on_a_workload_in_another_project(stage: Stage) -> None:
    first = stage.submit("prepare", stage.cast.speech, roles=ONE)
    second = stage.submit("second", roles=ONE, after=after("speech/prepare"))
    stage.tick(2)
    assert stage.phase(second) == Phase.PENDING
    stage.finish(first)
    stage.tick(3)
    assert stage.phase(second) == Phase.RUNNING


@pytest.mark.heavy
def test_array_task_waits_for_the_task_with_the_same_index_in_the_other_array(stage: Stage) -> None:
    large_node(stage)
    sweep = submit_array(stage, array={"tasks": 3})
    same = [{"workload": "sweep", "tasks": "same"}]
    evaluation = submit_array(stage, "eval", array={"tasks": 3}, after=same)
    stage.tick(2)
    assert {task.phase for task in tasks(evaluation)} == {"pending"}
    end(stage, sweep, 1)
    end(stage, sweep, 2, exit_code=3)
    stage.tick(4)
    assert [task.phase for task in tasks(evaluation)] == ["pending", "running", "cancelled"]
    assert (
        tasks(evaluation)[2].message == "Cancelled because vision/sweep-2 failed and can no longer complete."
    )
    end(stage, sweep, 0)
    stage.tick(3)
    end(stage, evaluation)
    stage.tick(3)
    evaluation.refresh_from_db()
    assert (evaluation.state, [task.phase for task in tasks(evaluation)]) == (
        "cancelled",
        ["completed", "completed", "cancelled"],
    )


@pytest.mark.heavy
def test_cancelled_tasks_do_not_occupy_slots_of_held_tasks(stage: Stage) -> None:
    # Tasks whose dependencies can never be met do not take the places of others.
    large_node(stage)
    sweep = submit_array(stage, array={"tasks": 5})
    same = [{"workload": "sweep", "tasks": "same"}]
    evaluation = submit_array(stage, "eval", array={"tasks": 5, "max_running": 1}, after=same)
    stage.tick(2)
    end(stage, sweep, 0, 1, 2, exit_code=3)
    end(stage, sweep, 4)
    stage.tick(12)
    assert [task.phase for task in tasks(evaluation)] == [
        "cancelled", "cancelled", "cancelled", "pending", "pending",
    ]  # fmt: skip
    end(stage, sweep, 3)
    stage.tick(4)
    assert tasks(evaluation)[3].phase == "running"


@pytest.mark.parametrize(
    ("state", "exit_code", "phase"),
    sample(
        [
            ("completed", 0, "running"),
            ("completed", 3, "cancelled"),
            ("failed", 3, "running"),
            ("any", 3, "running"),
        ],
        2,
    ),
)
def test_workload_can_depend_on_an_entire_array(stage: Stage, state: str, exit_code: int, phase: str) -> None:
    large_node(stage)
    sweep = submit_array(stage, array={"tasks": 2})
    report = stage.submit("report", roles=[{"cpu": 1}], after=after("sweep", state))
    stage.tick(2)
    end(stage, sweep, 0, exit_code=exit_code)
    stage.tick(3)
    verb = {"completed": "complete", "failed": "fail", "any": "end"}[state]
    assert stage.phase(report) == Phase.PENDING
    assert report.message == f"Waiting for vision/sweep to {verb} (active)."
    end(stage, sweep, 1)
    stage.tick(4)
    assert stage.phase(report) == phase


@pytest.mark.heavy
def test_edited_dependencies_apply_immediately(stage: Stage) -> None:
    running(stage, "first")
    second = stage.submit("second", roles=ONE, after=after("missing"))
    stage.tick()
    edit(actor=stage.cast.alice, workload=second, patch={"after": after("first", "any")})
    stage.tick()
    assert stage.phase(second) == Phase.PENDING
    assert second.message == "Waiting for vision/first to end (running)."
    edit(actor=stage.cast.alice, workload=second, patch={"after": None})
    stage.tick(2)
    assert stage.phase(second) == Phase.RUNNING


@pytest.mark.heavy
def test_snapshot_contains_the_dependency(stage: Stage) -> None:
    running(stage, "first")
    stage.submit("second", roles=ONE, after=after(state="any"))
    view = stage.loop.observe(stage.clock.now())
    assert view is not None
    (second,) = (row for row in view.snapshot.workloads if row.name == "vision/second")
    (dependency,) = second.after
    assert (dependency.workload, dependency.state, dependency.status) == ("vision/first", "any", "running")


def test_array_with_an_unfinished_dependent_cannot_be_deleted(stage: Stage) -> None:
    large_node(stage)
    sweep = submit_array(stage, array={"tasks": 1})
    stage.tick(2)
    end(stage, sweep)
    stage.tick(2)
    arrays.submit(
        actor=stage.cast.dave,
        document=training(
            "eval", project="vision", array={"tasks": 1}, after=after("sweep"), pools=["local"]
        ),
        now=stage.clock.now(),
    )
    sweep.refresh_from_db()
    assert sweep.state == "completed"
    with pytest.raises(Conflict, match="vision/eval depends on vision/sweep"):
        arrays.delete(actor=stage.cast.alice, array=sweep)


def test_cancellation_of_dependents_survives_a_scheduler_crash(stage: Stage) -> None:
    first = running(stage, "first")
    second = stage.submit("second", roles=ONE, after=after())
    third = stage.submit("third", roles=ONE, after=after("second"))
    stage.finish(first, 3)
    life = CrashingScheduler(stage, "dependencies.cancelled")
    while stage.phase(third) != Phase.CANCELLED:
        life.tick()
    assert life.deaths
    assert stage.phase(second) == Phase.CANCELLED
    assert Event.objects.filter(kind="cancelled").count() == 2
