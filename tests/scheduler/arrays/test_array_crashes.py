"""Tests that no crash while the scheduler works on an array loses, duplicates or leaks anything."""

from typing import Any

import pytest

from projects.models import ArrayState, Audit, Delivery, Event, Phase, Subscription, Workload, WorkloadArray
from projects.services import arrays
from tests.cast import training
from tests.harness.samples import sample
from tests.scheduler.arrays.test_arrays import ACTIVE_PHASES, ONE_CPU, counts, end, submit_array
from tests.scheduler.crashes import CrashingScheduler
from tests.scheduler.stage import Stage
from tests.support.crashes import killed_at

POINTS = ("arrays.done",)
OTHER_POINTS = (
    "arrays.before_end",
    "reports.written",
    "reports.done",
    "commit.bound",
    "commit.done",
    "dispatch.started",
)
MAX_RUNNING = 3


@pytest.mark.parametrize(
    "name", [*POINTS, *(pytest.param(name, marks=pytest.mark.heavy) for name in OTHER_POINTS)]
)
def test_array_survives_a_scheduler_crash(stage: Stage, name: str) -> None:
    Subscription.objects.create(user=None, to="ops@example.org", channel="mail", events=["completed"])
    array = submit_array(stage, array={"tasks": 8, "max_running": MAX_RUNNING})
    life = CrashingScheduler(stage, name)
    while array.state == ArrayState.ACTIVE:
        life.tick()
        assert Workload.objects.filter(array=array, phase__in=ACTIVE_PHASES).count() <= MAX_RUNNING
        end(stage, array)
        array.refresh_from_db()
    assert life.deaths
    assert (array.state, counts(array)) == ("completed", {"completed": 8})
    assert {(task.run, task.restarts) for task in array.tasks.all()} == {(1, 0)}
    assert Delivery.objects.count() == 1
    assert stage.runtime.running() == ()


def rows() -> list[Any]:
    """Return the state of all rows that a change of an array writes."""
    tasks = Workload.objects.order_by("pk").values_list("pk", "phase", "held", "superseded", "next_phase")
    arrays_ = WorkloadArray.objects.order_by("pk").values_list("pk", "state", "ended_at")
    return [list(tasks), list(arrays_), Event.objects.count(), Audit.objects.count()]


@pytest.mark.parametrize(
    ("change", "point"),
    sample(
        [
            ("submit", "array.stored"),
            ("cancel", "array.cancelled"),
            ("suspend", "array.suspended"),
            ("resume", "array.resumed"),
            ("retry", "array.superseded"),
            ("retry", "array.stored"),
        ],
        2,
    ),
)
def test_crash_during_an_array_change_leaves_no_partial_state(stage: Stage, change: str, point: str) -> None:
    dave = stage.cast.dave
    array = submit_array(stage, array={"tasks": 4, "max_running": 2})
    stage.tick(2)
    arrays.cancel(actor=dave, array=array, indexes=[0, 3])
    stage.tick(4)
    if change == "resume":
        arrays.suspend(actor=dave, array=array)
        stage.tick(4)
    before = rows()
    document = training("other", project="vision", roles=ONE_CPU, array={"tasks": 3})
    calls = {
        "submit": lambda: arrays.submit(actor=dave, document=document),
        "cancel": lambda: arrays.cancel(actor=dave, array=array),
        "suspend": lambda: arrays.suspend(actor=dave, array=array),
        "resume": lambda: arrays.resume(actor=dave, array=array),
        "retry": lambda: arrays.retry(actor=dave, array=array, indexes=[0, 3]),
    }

    with killed_at(point):
        calls[change]()
    assert rows() == before
    calls[change]()
    assert rows() != before
    assert Workload.objects.filter(array=array, held=True).exclude(phase=Phase.PENDING).count() == 0
