"""Stop the worst tasks of arrays by a metric: by the array's rule, or as many as a user asks for."""

import uuid
from collections.abc import Collection, Sequence
from datetime import datetime

from django.db import transaction

from berth.core.spec.arrays import ArraySpec, StopRule
from berth.core.words import format_count
from berth.db.crash_points import crash_point
from berth.db.wake import wake
from projects.actor import Actor
from projects.engine.stop_rules import TaskReports, TaskStop, decide_stops
from projects.models import ArrayState, Audit, Metric, Phase, Workload, WorkloadArray
from projects.models.workloads import ENDED_PHASES
from projects.reported_metrics import Goal, ranked_tasks, to_series
from projects.services import audit
from projects.services.arrays import progress
from projects.services.arrays.rows import lock_array
from projects.services.notifications.deliveries import enqueue_stopped_tasks
from projects.services.workloads.moves import Move, move_all

REASON, ACTOR = "StopRule", "scheduler"
TASKS_SHOWN = 5  # in notifications


def stop_rule(array: WorkloadArray) -> StopRule | None:
    section = array.spec.get("array") if isinstance(array.spec, dict) else None
    return ArraySpec.model_validate(section).stop if section and section.get("stop") else None


def preview_stops(array: WorkloadArray) -> list[TaskStop]:
    """Return the tasks that the array's rule would stop now. Empty without a rule."""
    rule = stop_rule(array)
    if rule is None or array.state != ArrayState.ACTIVE:
        return []
    return decide_stops(rule, _reports(array, rule))


def arrays_with_rules(workloads: Collection[uuid.UUID] | None = None) -> list[WorkloadArray]:
    """Return the active arrays that have a rule: all of them, or those of these tasks."""
    rows = WorkloadArray.objects.filter(state=ArrayState.ACTIVE, spec__array__has_key="stop")
    if workloads is not None:
        rows = rows.filter(pk__in=Workload.objects.filter(pk__in=workloads).values("array_id"))
    return list(rows.order_by("pk"))


def apply_stop_rule(array: WorkloadArray, now: datetime) -> int:
    """Cancel the tasks that the array's rule stops. Return their number. Idempotent.

    The events, audit entries and notifications are stored in the same transaction.
    """
    if not preview_stops(array):
        return 0
    with transaction.atomic():
        locked = lock_array(array)
        tasks = _lock_running(locked)
        stops = {each.index: each for each in preview_stops(locked)}
        stopped = [(task, stops[task.array_index]) for task in tasks if task.array_index in stops]
        stopped.sort(key=lambda pair: pair[1].index)
        if not stopped:
            return 0
        move_all([_move(task, stop) for task, stop in stopped], actor=ACTOR, now=now)
        crash_point("array.stopped_by_rule")
        Audit.objects.bulk_create([_audit_entry(task, stop) for task, stop in stopped])
        enqueue_stopped_tasks(locked, REASON, _summary(stopped), now)
        progress.release([locked.pk], now)
        wake("scheduler")
    return len(stopped)


def worst_tasks(array: WorkloadArray, metric: str, goal: Goal, count: int) -> list[int]:
    """Return the indexes of the live tasks with the worst values of a metric, the worst first.

    Tasks that have reported no finite value are the worst. Tasks without any report are left out.
    """
    live = Metric.objects.filter(workload__array=array, workload__superseded=False, name=metric)
    live = live.exclude(workload__phase__in=(*ENDED_PHASES, Phase.STOPPING))
    broken = live.filter(last_value__isnull=True).order_by("workload__array_index")
    ranked = ranked_tasks(array, metric, goal).filter(pk__in=live.values("pk")).reverse()
    indexes = [
        *broken.values_list("workload__array_index", flat=True)[:count],
        *ranked.values_list("workload__array_index", flat=True)[:count],
    ]
    return [index for index in indexes[:count] if index is not None]


def _reports(array: WorkloadArray, rule: StopRule) -> list[TaskReports]:
    rows = Metric.objects.filter(workload__array=array, workload__superseded=False, name=rule.metric)
    rows = rows.select_related("workload").only(
        *(field.name for field in Metric._meta.concrete_fields), "workload__array_index", "workload__phase"
    )
    return [
        TaskReports(row.workload.array_index or 0, row.workload.phase == Phase.RUNNING, to_series(row))
        for row in rows
    ]


def _lock_running(array: WorkloadArray) -> list[Workload]:
    rows = Workload.objects.filter(array=array, superseded=False, phase=Phase.RUNNING)
    rows = rows.select_for_update(of=("self",)).defer("explanation", "pending_reasons").order_by("pk")
    tasks = list(rows)
    for task in tasks:
        task.project, task.array = array.project, array
    return tasks


def _move(task: Workload, stop: TaskStop) -> Move:
    message = f"Stopped by the rule of the array: {stop.sentence}."
    columns = {"next_phase": Phase.CANCELLED}
    return Move(task, [Phase.RUNNING], Phase.STOPPING, REASON, message, data=_numbers(stop), columns=columns)


def _audit_entry(task: Workload, stop: TaskStop) -> Audit:
    return audit.build_entry(
        Actor.system(ACTOR), "stop_by_rule", task, before={"phase": Phase.RUNNING},
        after={"phase": Phase.CANCELLED, **_numbers(stop)}, project=task.project,
    )  # fmt: skip


def _summary(stopped: Sequence[tuple[Workload, TaskStop]]) -> str:
    """Return the text of the notification."""
    shown = "; ".join(f"{task.name}: {stop.sentence}" for task, stop in stopped[:TASKS_SHOWN])
    more = f"; and {len(stopped) - TASKS_SHOWN} more" if len(stopped) > TASKS_SHOWN else ""
    return f"{format_count(len(stopped), 'task')} stopped by the rule of the array. {shown}{more}."


def _numbers(stop: TaskStop) -> dict[str, object]:
    return {
        "metric": stop.metric, "step": stop.step, "value": stop.value, "median": stop.median,
        "tasks": stop.tasks,
    }  # fmt: skip
