"""Stop the tasks with the worst metric values, because of a stop rule or at a user's request."""

import uuid
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from django.db import transaction
from django.db.models import Q

from berth.core.spec.sections.arrays import StopRule
from berth.core.wording.words import format_count
from berth.db.loops.crash_points import crash_point
from berth.db.loops.wake import wake
from projects.actor import Actor
from projects.engine.stop_rules import TaskReports, TaskStop, decide_stops, steps_to_compare
from projects.models import ArrayState, Audit, Metric, Phase, Workload, WorkloadArray
from projects.models.arrays import STOP_RULE_REASON
from projects.models.workloads import ENDED_PHASES
from projects.queries.reported_metrics import Goal, ranked_tasks, to_series
from projects.services import audit
from projects.services.arrays import progress
from projects.services.arrays.rows import lock_array
from projects.services.notifications.deliveries import enqueue_stopped_tasks
from projects.services.workloads.phase_transitions import PhaseTransition, change_phases

ACTOR = "scheduler"
TASKS_SHOWN = 5  # maximum number of tasks listed in notifications
STEPS_MAX = 100  # maximum number of steps that are compared in one round
PREVIEW_TASKS_MAX = 500  # maximum number of tasks for a preview of the tasks to stop
TASKS_PER_QUERY = 200
SUMMARY_COLUMNS = (
    "workload", "workload__array_index", "workload__phase", "stride", "last_step", "last_value", "min_step",
    "min_value", "max_step", "max_value", "not_finite", "not_finite_step", "reported_at",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class StopDecision:
    """Tasks to stop, with the time of each task's last report.

    `next_index` is the task index at which the next round starts, or 0 once all tasks have been compared.
    """

    stops: list[TaskStop]
    reported_at: dict[int, datetime]
    next_index: int


def parse_stop_rule(array: WorkloadArray) -> StopRule | None:
    section = array.spec.get("array") if isinstance(array.spec, dict) else None
    return StopRule.model_validate(section["stop"]) if section and section.get("stop") else None


def preview_stops(array: WorkloadArray) -> list[TaskStop] | None:
    """Return the tasks that the array's stop rule would stop now.

    Return None if there are more than PREVIEW_TASKS_MAX tasks.
    """
    if array.task_count > PREVIEW_TASKS_MAX and parse_stop_rule(array) is not None:
        return None
    return decide_tasks_to_stop(array, steps_max=None).stops


def decide_tasks_to_stop(
    array: WorkloadArray, first: int = 0, steps_max: int | None = STEPS_MAX
) -> StopDecision:
    """Return the running tasks to stop.

    The comparison starts at task index `first` and covers at most `steps_max` different steps.
    """
    rule = parse_stop_rule(array)
    if rule is None or array.state != ArrayState.ACTIVE:
        return StopDecision([], {}, 0)
    metrics = Metric.objects.filter(workload__array=array, workload__superseded=False, name=rule.metric)
    metrics = metrics.select_related("workload").only(*SUMMARY_COLUMNS).order_by("workload__array_index")
    rows = list(metrics)
    for row in rows:
        row.steps = row.values = []
    steps, next_index = steps_to_compare(rule, map(_to_reports, rows), first, steps_max)
    if not steps:
        return StopDecision([], {}, 0)
    stops = decide_stops(rule, _load_task_reports(rows, rule, steps[0]), steps)
    return StopDecision(stops, {row.workload.array_index or 0: row.reported_at for row in rows}, next_index)


def arrays_with_rules(
    workloads: Collection[uuid.UUID] | None = None, arrays: Collection[uuid.UUID] = ()
) -> list[WorkloadArray]:
    """Return the active arrays that have a stop rule.

    If `workloads` is not None, only arrays with one of these tasks or in `arrays` are returned.
    """
    rows = WorkloadArray.objects.filter(state=ArrayState.ACTIVE, spec__array__has_key="stop")
    if workloads is not None:
        of_tasks = Workload.objects.filter(pk__in=workloads).values("array_id")
        rows = rows.filter(Q(pk__in=of_tasks) | Q(pk__in=arrays))
    return list(rows.order_by("pk"))


def cancel_tasks_to_stop(array: WorkloadArray, decision: StopDecision, now: datetime) -> int:
    """Cancel the tasks that are still running and have not reported since the decision.

    Return the number of cancelled tasks.
    """
    if not decision.stops:
        return 0
    with transaction.atomic():
        locked = lock_array(array)
        if locked.state != ArrayState.ACTIVE:
            return 0
        tasks = _lock_unchanged(locked, decision)
        stopped = [(tasks[stop.index], stop) for stop in decision.stops if stop.index in tasks]
        if not stopped:
            return 0
        change_phases([_stop_transition(task, stop) for task, stop in stopped], actor=ACTOR, now=now)
        crash_point("array.stopped_by_rule")
        Audit.objects.bulk_create([_audit_entry(task, stop) for task, stop in stopped])
        enqueue_stopped_tasks(locked, STOP_RULE_REASON, _summarize_stops(stopped), now)
        progress.release_held_tasks([locked.pk], now)
        wake("scheduler")
    return len(stopped)


def worst_tasks(array: WorkloadArray, metric: str, goal: Goal, count: int) -> list[int]:
    """Return the indexes of the live tasks with the worst values of a metric, worst first.

    Values that are not finite are the worst.
    """
    live = Metric.objects.filter(workload__array=array, workload__superseded=False, name=metric)
    live = live.exclude(workload__phase__in=(*ENDED_PHASES, Phase.STOPPING))
    is_broken = Q(last_value__isnull=True) | Q(not_finite_step__isnull=False)
    broken = live.filter(is_broken).order_by("workload__array_index")
    ranked = ranked_tasks(array, metric, goal).filter(pk__in=live.exclude(is_broken).values("pk")).reverse()
    indexes = [
        *broken.values_list("workload__array_index", flat=True)[:count],
        *ranked.values_list("workload__array_index", flat=True)[:count],
    ]
    return [index for index in indexes[:count] if index is not None]


def _load_task_reports(rows: Sequence[Metric], rule: StopRule, first_step: int) -> Iterator[TaskReports]:
    """Yield the metric reports of each task.

    Points are loaded only for tasks that reported their best value after `first_step`.
    """
    column = f"{rule.goal}_step"
    for start in range(0, len(rows), TASKS_PER_QUERY):
        batch = rows[start : start + TASKS_PER_QUERY]
        late = [row.pk for row in batch if (getattr(row, column) or 0) > first_step]
        stored = Metric.objects.filter(pk__in=late).order_by().values_list("pk", "steps", "values")
        points = {pk: (steps, values) for pk, steps, values in stored} if late else {}
        for row in batch:
            row.steps, row.values = points.get(row.pk, ([], []))
            reports = _to_reports(row)
            row.steps = row.values = []  # release the points, so that only one batch is in memory
            yield reports


def _to_reports(row: Metric) -> TaskReports:
    return TaskReports(row.workload.array_index or 0, row.workload.phase == Phase.RUNNING, to_series(row))


def _lock_unchanged(array: WorkloadArray, decision: StopDecision) -> dict[int, Workload]:
    """Return the running tasks that have not reported since the decision, keyed by index."""
    indexes, metric = [stop.index for stop in decision.stops], decision.stops[0].metric
    rows = Workload.objects.filter(
        array=array, superseded=False, phase=Phase.RUNNING, array_index__in=indexes
    )
    rows = rows.select_for_update(of=("self",)).defer("explanation", "pending_reasons").order_by("pk")
    tasks = {task.pk: task for task in rows}
    unchanged = {}
    reported = Metric.objects.filter(workload__in=list(tasks), name=metric).order_by()
    for pk, reported_at in reported.values_list("workload_id", "reported_at"):
        task = tasks[pk]
        task.project, task.array = array.project, array
        index = task.array_index or 0
        if decision.reported_at[index] == reported_at:
            unchanged[index] = task
    return unchanged


def _stop_transition(task: Workload, stop: TaskStop) -> PhaseTransition:
    message = f"Stopped by the array's stop rule: {stop.sentence}."
    columns = {"next_phase": Phase.CANCELLED}
    return PhaseTransition(
        task,
        [Phase.RUNNING],
        Phase.STOPPING,
        STOP_RULE_REASON,
        message,
        data=_event_numbers(stop),
        columns=columns,
    )


def _audit_entry(task: Workload, stop: TaskStop) -> Audit:
    return audit.build_entry(
        Actor.system(ACTOR), "stop_by_rule", task, before={"phase": Phase.RUNNING},
        after={"phase": Phase.CANCELLED, **_event_numbers(stop)}, project=task.project,
    )  # fmt: skip


def _summarize_stops(stopped: Sequence[tuple[Workload, TaskStop]]) -> str:
    """Return text for a notification: how many tasks were stopped, and why the first ones were."""
    shown = "; ".join(f"{task.name}: {stop.sentence}" for task, stop in stopped[:TASKS_SHOWN])
    more = f"; and {len(stopped) - TASKS_SHOWN} more" if len(stopped) > TASKS_SHOWN else ""
    return f"{format_count(len(stopped), 'task')} stopped by the array's stop rule. {shown}{more}."


def _event_numbers(stop: TaskStop) -> dict[str, object]:
    return {
        "metric": stop.metric, "step": stop.step, "value": stop.value, "median": stop.median,
        "tasks": stop.tasks,
    }  # fmt: skip
