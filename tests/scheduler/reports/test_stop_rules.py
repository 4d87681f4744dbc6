"""Tests that stop rules of arrays cancel the worst tasks once and record the numbers."""

import json
from typing import Any

import pytest

from berth.core.errors import Invalid
from projects.models import Audit, Delivery, Event, Metric, Workload, WorkloadArray
from projects.services import arrays
from projects.services.arrays.stop_rules import cancel_tasks_to_stop, decide_tasks_to_stop, preview_stops
from scheduler.reports.metrics import collector
from scheduler.reports.metrics.collector import MetricsCollector
from tests.cast import training
from tests.scheduler.stage import Stage
from tests.support.crashes import killed_at

RULE = {"metric": "loss", "after_steps": 10, "min_tasks": 3}
SENTENCE = "Stopped by the array's stop rule: loss 4 at step 10, median 1.5 of 4 other tasks."


def document(**changes: Any) -> dict[str, Any]:
    section = {"tasks": 5, "stop": RULE, **changes.pop("array", {})}
    return training("sweep", roles=[{"name": "worker", "replicas": 1}], array=section, **changes)


class Sweep:
    def __init__(self, stage: Stage, **changes: Any) -> None:
        self.stage = stage
        values = document(project="vision", **changes)
        self.array = arrays.submit(actor=stage.cast.alice, document=values, now=stage.clock.now()).array
        stage.tick(3, seconds=1)
        self.collector = MetricsCollector(stage.clock, lambda pool: stage.runtime, 5)

    def task(self, index: int) -> Workload:
        return Workload.objects.get(array=self.array, array_index=index)

    def report(self, index: int, step: int, loss: float) -> None:
        (pod,) = self.stage.pods(self.task(index), "running")
        line = f"berth-report {json.dumps({'step': step, 'loss': loss})}\n"
        self.stage.runtime.write(str(pod.pk), line.encode())

    def report_all(self, step: int = 10) -> None:
        for index in range(5):
            self.report(index, step, float(index))

    def collect(self, seconds: float = 20) -> None:
        self.stage.clock.advance(seconds)
        assert self.collector.run_once()
        self.stage.tick(3, seconds=1)

    def cancelled(self) -> list[int]:
        rows = Workload.objects.filter(array=self.array, phase="cancelled").order_by("array_index")
        return [index for index in rows.values_list("array_index", flat=True) if index is not None]


@pytest.fixture
def sweep(stage: Stage) -> Sweep:
    return Sweep(stage, notifications=[{"to": "me@example.org", "on": ["cancelled"]}])


def test_worst_tasks_are_cancelled_once_and_the_compared_values_are_recorded(sweep: Sweep) -> None:
    sweep.report_all(step=9)
    sweep.collect()
    assert (sweep.cancelled(), preview_stops(sweep.array)) == ([], [])
    sweep.report_all(step=10)
    sweep.collect()
    assert sweep.cancelled() == [3, 4]
    for _ in range(2):
        sweep.report(0, 20, 0.0)
        sweep.collect()
    assert sweep.cancelled() == [3, 4]
    task = sweep.task(4)
    assert (task.reason, task.message) == ("StopRule", SENTENCE)
    assert Event.objects.filter(workload_id=task.pk, message=SENTENCE).exists()
    entry = Audit.objects.get(action="stop_by_rule", object_id=str(task.pk))
    assert entry.after == {
        "phase": "cancelled", "metric": "loss", "step": 10, "value": 4.0, "median": 1.5, "tasks": 4,
    }  # fmt: skip
    assert Audit.objects.filter(action="stop_by_rule").count() == 2
    (delivery,) = Delivery.objects.all()
    assert delivery.content["message"].startswith(
        "2 tasks stopped by the array's stop rule. sweep-3: loss 3 at"
    )


@pytest.mark.parametrize(("cancelled", "state"), [([], "completed"), ([2], "cancelled")])
def test_array_completes_even_if_its_stop_rule_cancelled_tasks(
    sweep: Sweep, cancelled: list[int], state: str
) -> None:
    sweep.report_all()
    sweep.collect()
    assert sweep.cancelled() == [3, 4]
    if cancelled:
        arrays.cancel(actor=sweep.stage.cast.alice, array=sweep.array, indexes=cancelled, dry_run=False)
    for index in {0, 1, 2} - set(cancelled):
        (pod,) = sweep.stage.pods(sweep.task(index), "running")
        sweep.stage.runtime.end(str(pod.pk), exit_code=0)
    sweep.stage.tick(4, seconds=1)
    sweep.array.refresh_from_db()
    assert sweep.array.state == state


@pytest.mark.heavy
def test_nan_counts_as_the_worst_value(sweep: Sweep) -> None:
    for index, loss in enumerate((1.0, 2.0, 2.0, 2.0, float("nan"))):
        sweep.report(index, 10, loss)
    sweep.collect()
    assert sweep.cancelled() == [4]
    assert "loss is not a number at step 10, median 2 of 4 other tasks" in sweep.task(4).message


@pytest.mark.parametrize("point", ["metrics.stored", "array.stopped_by_rule"])
def test_crash_does_not_lose_or_repeat_the_cancellation_of_a_task(sweep: Sweep, point: str) -> None:
    sweep.report_all()

    with killed_at(point):
        sweep.collect()
    assert sweep.cancelled() == []
    sweep.stage.clock.advance(300)
    sweep.collector = MetricsCollector(sweep.stage.clock, lambda pool: sweep.stage.runtime, 5)
    sweep.collect()
    assert sweep.cancelled() == [3, 4]
    assert Audit.objects.filter(action="stop_by_rule").count() == 2


@pytest.mark.heavy
def test_worst_tasks_of_an_array_without_a_stop_rule_are_identified_but_not_cancelled(stage: Stage) -> None:
    sweep = Sweep(stage, array={"stop": None})
    sweep.report_all()
    sweep.collect()
    assert (sweep.cancelled(), preview_stops(sweep.array)) == ([], [])
    sweep.report(1, 11, float("nan"))
    sweep.collect()
    assert arrays.worst_tasks(sweep.array, "loss", "min", 2) == [1, 4]
    assert arrays.worst_tasks(sweep.array, "loss", "max", 2) == [1, 0]
    sweep.report(1, 12, 0.5)
    sweep.collect()
    assert arrays.worst_tasks(sweep.array, "loss", "min", 2) == [4, 3], "the task has recovered"
    assert arrays.worst_tasks(sweep.array, "none", "min", 1) == []


@pytest.mark.heavy
def test_task_that_reports_during_the_decision_is_not_stopped(sweep: Sweep) -> None:
    sweep.report_all(step=9)
    sweep.collect()
    Metric.objects.filter(workload__array=sweep.array).update(last_step=10)
    decision = decide_tasks_to_stop(sweep.array)
    assert [stop.index for stop in decision.stops] == [3, 4]
    Metric.objects.filter(workload=sweep.task(3)).update(reported_at=sweep.stage.clock.now())
    assert cancel_tasks_to_stop(sweep.array, decision, sweep.stage.clock.now()) == 1
    assert sweep.task(4).phase == "stopping"
    assert cancel_tasks_to_stop(sweep.array, decision, sweep.stage.clock.now()) == 0


@pytest.mark.heavy
def test_tasks_at_different_steps_are_compared_over_several_rounds(
    sweep: Sweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        collector,
        "decide_tasks_to_stop",
        lambda array, first: decide_tasks_to_stop(array, first, steps_max=1),
    )
    sweep.report_all(step=9)
    for index in range(5):
        sweep.report(index, 14 - index, float(index))
    rounds = []
    for _ in range(5):
        sweep.collect()
        rounds.append(sweep.cancelled())
    assert rounds == [[], [], [], [3], [3, 4]]


@pytest.mark.heavy
def test_failing_stop_rule_does_not_delay_the_stop_rules_of_other_arrays(stage: Stage) -> None:
    broken = arrays.submit(
        actor=stage.cast.alice, document={**document(project="vision"), "name": "broken"}
    ).array
    broken.spec["array"]["stop"] = {"metric": 1}
    broken.save(update_fields=["spec"])
    sweep = Sweep(stage)
    sweep.report_all()
    sweep.collect()
    assert sweep.cancelled() == [3, 4]


@pytest.mark.heavy
def test_leader_applies_all_stop_rules_after_it_regains_the_lease(
    sweep: Sweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep.report_all(step=9)
    sweep.collect()
    other = MetricsCollector(sweep.stage.clock, lambda pool: sweep.stage.runtime, 5)
    # The process is killed after it has stored the reports.
    monkeypatch.setattr(other, "_stop_tasks", lambda now, held: None)
    sweep.report_all(step=10)
    sweep.stage.clock.advance(20)
    assert other.run_once()
    sweep.collect()
    assert sweep.cancelled() == [3, 4]


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"metric": "a b"}, "array.stop.metric"), ({"goal": "low"}, "array.stop.goal"),
        ({"after_steps": -1}, "array.stop.after_steps"), ({"min_tasks": 5}, "array.stop.min_tasks"),
        ({"metrik": "x"}, "array.stop.metrik"),
    ],
)  # fmt: skip
def test_error_for_an_invalid_stop_rule_names_its_key(
    stage: Stage, changes: dict[str, Any], path: str
) -> None:
    with pytest.raises(Invalid) as rejection:
        arrays.submit(
            actor=stage.cast.alice, document=document(project="vision", array={"stop": {**RULE, **changes}})
        )
    assert [problem.path for problem in rejection.value.problems] == [path]
    assert not WorkloadArray.objects.exists()
