"""Tests that the scheduler releases array tasks in order and never runs more than `max_running`."""

from collections import Counter
from typing import Any

import pytest

from berth.core.spec.values.addresses import Channel
from projects.models import ArrayState, Delivery, Phase, Pod, Subscription, Workload, WorkloadArray
from projects.models.arrays import PENDING_MAX, WAITING_REASON
from projects.services import arrays, workloads
from projects.services.people import tokens
from scheduler.reports.explanations.workload import explain
from tests.api.conftest import Caller
from tests.cast import training
from tests.scheduler.stage import Stage
from tests.scheduler.tick_work.statements import Counts, counted, large_node

ACTIVE_PHASES = ("reserved", "starting", "running", "stopping")
ONE_CPU = [{"name": "worker", "replicas": 1, "cpu": 1}]


def submit_array(stage: Stage, name: str = "sweep", **changes: Any) -> WorkloadArray:
    document = training(name, **{"project": "vision", "roles": ONE_CPU, **changes})
    return arrays.submit(actor=stage.cast.dave, document=document, now=stage.clock.now()).array


def tasks(array: WorkloadArray, **filters: Any) -> list[Workload]:
    return list(Workload.objects.filter(array=array, superseded=False, **filters).order_by("array_index"))


def active(array: WorkloadArray) -> list[int | None]:
    return [
        task.array_index for task in tasks(array, phase__in=["reserved", "starting", "running", "stopping"])
    ]


def end(stage: Stage, array: WorkloadArray, *indexes: int, exit_code: int = 0) -> None:
    for pod in Pod.objects.filter(workload__array=array, state="running"):
        if not indexes or pod.workload.array_index in indexes:
            stage.runtime.end(str(pod.pk), exit_code=exit_code)


def counts(array: WorkloadArray) -> dict[str, int]:
    row = arrays.count_tasks_by_array([array])[array.pk]
    return {name: value for name in row.__slots__ if (value := getattr(row, name))}


def run_to_end(stage: Stage, array: WorkloadArray, most: int) -> list[int]:
    """End all running tasks in each tick, and return the number of tasks that had resources."""
    seen = []
    for _ in range(200):
        stage.tick(seconds=1)
        seen.append(len(active(array)))
        assert seen[-1] <= most
        end(stage, array)
        array.refresh_from_db()
        if array.state != ArrayState.ACTIVE:
            return seen
    raise AssertionError("the array never ended")


@pytest.mark.heavy
def test_running_tasks_never_exceed_max_running(stage: Stage) -> None:
    large_node(stage)
    array = submit_array(stage, array={"tasks": 20, "max_running": 3})
    assert counts(array) == {"held": 17, "pending": 3}
    assert max(run_to_end(stage, array, most=3)) == 3
    assert (array.state, counts(array)) == ("completed", {"completed": 20})


def test_tasks_are_released_in_index_order(stage: Stage) -> None:
    large_node(stage)
    array = submit_array(stage, array={"tasks": ["5-9", 2, 100], "max_running": 2})
    assert [task.array_index for task in tasks(array, held=False)] == [2, 5]
    stage.tick(2)
    end(stage, array, 5)
    stage.tick()
    assert [task.array_index for task in tasks(array, held=False)] == [2, 5, 6]
    assert active(array) == [2, 6], "the tick that records the end places the next task"


def test_array_tasks_start_and_are_queued_in_index_order(stage: Stage) -> None:
    one_gpu = [{"name": "worker", "replicas": 1, "gpu": 1}]
    array = submit_array(stage, roles=one_gpu, array={"tasks": 14})
    stage.tick(2)
    assert active(array) == [0, 1, 2, 3]
    dave = Caller(tokens.issue(actor=stage.cast.dave, name="t", scopes=["read"], expires_at=None)[1])
    queue = dave.get("node-pools/local/queue").json()["items"]
    assert [(row["queue_position"], row["name"]) for row in queue] == [
        (position, f"sweep-{position + 3}") for position in range(1, 11)
    ]


def test_scheduler_sees_only_released_tasks(stage: Stage) -> None:
    array = submit_array(stage, array={"tasks": 1000})
    view = stage.loop.observe(stage.clock.now())
    assert view is not None
    assert len(view.workloads) == PENDING_MAX
    assert counts(array) == {"held": 900, "pending": 100}


@pytest.mark.heavy
def test_large_array_fills_a_large_cluster_without_waiting_for_tasks_to_end(stage: Stage) -> None:
    large_node(stage)
    array = submit_array(stage, array={"tasks": 190})
    stage.tick(3)
    assert len(active(array)) > PENDING_MAX


def test_suspended_task_frees_its_slot_and_is_queued_again_when_resumed(stage: Stage) -> None:
    large_node(stage)
    array = submit_array(stage, array={"tasks": 3, "max_running": 1})
    first = tasks(array)[0]
    workloads.suspend(actor=stage.cast.dave, workload=first)
    stage.tick()
    assert active(array) == [1]
    workloads.resume(actor=stage.cast.dave, workload=first)
    first.refresh_from_db()
    assert (first.phase, first.held, first.reason) == (Phase.PENDING, True, WAITING_REASON)
    run_to_end(stage, array, most=1)
    assert counts(array) == {"completed": 3}


@pytest.mark.heavy
def test_lowered_max_running_applies_once_enough_tasks_have_ended(stage: Stage) -> None:
    large_node(stage)
    array = submit_array(stage, array={"tasks": 8, "max_running": 4})
    stage.tick(2)
    arrays.set_max_running(actor=stage.cast.dave, array=array, max_running=2)
    stage.tick()
    assert active(array) == [0, 1, 2, 3], "running tasks continue"
    end(stage, array, 0, 1, 2)
    stage.tick(2)
    assert active(array) == [3, 4]
    run_to_end(stage, array, most=2)
    assert counts(array) == {"completed": 8}


@pytest.mark.heavy
def test_plan_made_before_max_running_was_lowered_starts_no_held_task(stage: Stage) -> None:
    large_node(stage)
    array = submit_array(stage, array={"tasks": 5, "max_running": 4})
    view = stage.loop.observe(stage.clock.now())
    plan = stage.loop.decide(view)
    assert plan is not None and len(plan.bundles) == 4
    arrays.set_max_running(actor=stage.cast.dave, array=array, max_running=1)
    stage.loop.commit(view, plan)
    assert active(array) == [0]
    assert counts(array) == {"held": 4, "starting": 1}


@pytest.mark.heavy
def test_suspended_array_stops_and_continues_when_resumed(stage: Stage) -> None:
    large_node(stage)
    array = submit_array(stage, array={"tasks": 5, "max_running": 2})
    stage.tick(2)
    assert arrays.suspend(actor=stage.cast.dave, array=array) == 5
    assert counts(array) == {"stopping": 2, "suspended": 3}
    assert arrays.resume(actor=stage.cast.dave, array=array, indexes=[1]) == 1, "while it is stopping"
    stage.tick(4, seconds=1)
    assert counts(array) == {"running": 1, "suspended": 4}
    array.refresh_from_db()
    assert array.state == ArrayState.ACTIVE
    assert arrays.resume(actor=stage.cast.dave, array=array) == 4
    run_to_end(stage, array, most=2)
    assert (array.state, counts(array)) == ("completed", {"completed": 5})


def test_array_with_a_failed_task_fails_and_sends_one_notification(stage: Stage) -> None:
    large_node(stage)
    events = ["started", "completed", "failed"]
    Subscription.objects.create(user=None, to="ops@example.org", channel=Channel.MAIL, events=events)
    array = submit_array(stage, array={"tasks": 3})
    stage.tick(2)
    Delivery.objects.all().delete()  # delete the delivery for the large node's own workload
    end(stage, array, 1, exit_code=1)
    end(stage, array, 0, 2)
    stage.tick(2)
    array.refresh_from_db()
    assert (array.state, counts(array)) == ("failed", {"completed": 2, "failed": 1})
    (delivery,) = Delivery.objects.all()
    assert delivery.content["array"] == "sweep"
    assert delivery.content["message"] == "2 of 3 tasks completed and 1 failed."


@pytest.mark.heavy
def test_unschedulable_array_is_reported_once(stage: Stage) -> None:
    Subscription.objects.create(
        user=None, to="ops@example.org", channel=Channel.MAIL, events=["unschedulable"]
    )
    roles = [{"name": "worker", "replicas": 1, "gpu": 64}]
    document = training("sweep", project="vision", roles=roles, array={"tasks": 5})
    arrays.submit(actor=stage.cast.dave, document=document, now=stage.clock.now())
    stage.tick(2)
    assert set(Workload.objects.values_list("reason", flat=True)) == {"Unschedulable"}
    assert Delivery.objects.count() == 1


@pytest.mark.heavy
def test_explanation_of_a_held_task_states_the_running_tasks_and_their_limit(stage: Stage) -> None:
    large_node(stage)
    array = submit_array(stage, array={"tasks": 10, "max_running": 2})
    stage.tick(2)
    explanation = explain(stage.cast.dave, tasks(array)[7])
    assert explanation.reason == WAITING_REASON
    assert explanation.message == (
        "Tasks of the array sweep: 2 of at most 2 running; 5 tasks before this one."
    )
    (blocker,) = explanation.blockers
    assert blocker["numbers"] == {"active": 2, "pending": 0, "tasks_before": 5, "max_running": 2}


def test_task_receives_its_index_and_parameters(stage: Stage) -> None:
    large_node(stage)
    array = submit_array(stage, env={"SEED": "1"}, array={"matrix": {"LR": [0.1, 0.2], "DEPTH": [2, 4]}})
    stage.tick()
    pods = Pod.objects.filter(workload__array=array).select_related("workload")
    envs = {pod.workload.array_index: stage.runtime.order(str(pod.pk)).env for pod in pods}
    assert {index: (env["LR"], env["DEPTH"], env["SEED"]) for index, env in envs.items()} == {
        0: ("0.1", "2", "1"), 1: ("0.1", "4", "1"), 2: ("0.2", "2", "1"), 3: ("0.2", "4", "1"),
    }  # fmt: skip
    names = ("BERTH_ARRAY", "BERTH_ARRAY_INDEX", "BERTH_ARRAY_TASKS", "BERTH_ARRAY_ATTEMPT")
    assert [envs[2][name] for name in names] == ["sweep", "2", "4", "1"]


@pytest.mark.heavy
def test_retried_tasks_run_as_new_attempts(stage: Stage) -> None:
    large_node(stage)
    array = submit_array(stage, array={"tasks": 4})
    stage.tick(2)
    end(stage, array, 1, 2, exit_code=1)
    end(stage, array, 0, 3)
    stage.tick(2)
    assert arrays.retry(actor=stage.cast.dave, array=array) == 2
    assert counts(array) == {"completed": 2, "pending": 2}
    run_to_end(stage, array, most=4)
    assert (array.state, counts(array)) == ("completed", {"completed": 4})
    attempts = Counter(Workload.objects.filter(array=array).values_list("array_index", flat=True))
    assert attempts == {0: 1, 1: 2, 2: 2, 3: 1}
    assert [task.attempt for task in tasks(array)] == [1, 2, 2, 1]


def test_cancelled_array_ends_after_its_running_tasks_stop(stage: Stage) -> None:
    large_node(stage)
    array = submit_array(stage, array={"tasks": 10, "max_running": 4})
    stage.tick(2)
    assert arrays.cancel(actor=stage.cast.dave, array=array) == 10
    assert counts(array) == {"stopping": 4, "cancelled": 6}
    stage.tick(4, seconds=1)
    array.refresh_from_db()
    assert (array.state, counts(array)) == ("cancelled", {"cancelled": 10})
    assert len(stage.runtime.running()) == 1


@pytest.mark.heavy
def test_cancelled_tasks_free_slots_for_later_tasks(stage: Stage) -> None:
    array = submit_array(stage, array={"tasks": 6, "max_running": 2})
    assert arrays.cancel(actor=stage.cast.dave, array=array, indexes=[0, 4]) == 2
    assert [task.array_index for task in tasks(array, phase=Phase.PENDING, held=False)] == [1, 2]
    assert arrays.cancel(actor=stage.cast.dave, array=array, indexes=[0, 4]) == 0, "already cancelled"


@pytest.mark.heavy
def test_held_tasks_fail_when_their_deadline_passes(stage: Stage) -> None:
    deadline = int(stage.clock.now().timestamp()) + 60
    array = submit_array(stage, array={"tasks": 5, "max_running": 1}, deadline=deadline)
    stage.clock.advance(61)
    stage.tick(8)
    array.refresh_from_db()
    assert (array.state, counts(array)) == ("failed", {"failed": 5})


@pytest.mark.heavy
def test_tick_statement_count_does_not_grow_with_tasks_or_arrays(stage: Stage) -> None:
    large_node(stage)
    by_size: dict[int, Counts] = {}
    for size in (1, 10):
        made = [
            submit_array(stage, f"sweep-of-{size}-{number}", array={"tasks": 2 * size, "max_running": size})
            for number in range(size)
        ]
        stage.tick(2)
        for array in made:
            assert len(active(array)) == size
            end(stage, array)
        measured = by_size.setdefault(size, {})
        with counted(measured, "observe"):
            stage.loop.observe(stage.clock.now())
        for array in made:
            assert counts(array) == {"completed": size, "pending": size}
        stage.tick(2)
        for array in made:
            end(stage, array)
        with counted(measured, "end"):
            stage.loop.observe(stage.clock.now())
        assert {row.state for row in WorkloadArray.objects.filter(pk__in=[row.pk for row in made])} == {
            "completed"
        }
    assert by_size[1] == by_size[10]


def test_dependent_workload_waits_until_all_tasks_have_completed(stage: Stage) -> None:
    large_node(stage)
    array = submit_array(stage, array={"tasks": 2})
    document = training("report", project="vision", roles=ONE_CPU, after=[{"workload": "sweep"}])
    submitted = workloads.submit_with_warnings(actor=stage.cast.dave, document=document)
    assert submitted.warnings == []
    stage.tick(2)
    end(stage, array, 0)
    stage.tick(2)
    assert (stage.phase(submitted.workload), submitted.workload.reason) == ("pending", "DependencyNotMet")
    end(stage, array, 1)
    stage.tick(3)
    assert stage.phase(submitted.workload) == Phase.RUNNING
