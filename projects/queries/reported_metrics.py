"""Queries for the metrics that workloads report."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Literal
from uuid import UUID

from django.db.models import Count, Exists, OuterRef, QuerySet

from projects.actor import Actor
from projects.engine.metrics import Point, Series
from projects.models import Metric, MetricsReader, Pod, Workload, WorkloadArray
from projects.selectors import workloads

Goal = Literal["min", "max"]
NAMES_MAX = 500
REPORTS_FOLLOW = timedelta(minutes=2)


def can_metrics_change(ended_at: datetime | None, now: datetime) -> bool:
    """Return whether a workload's metrics can still change.

    Logs are read for a while after the workload has ended.
    """
    return ended_at is None or now - ended_at < REPORTS_FOLLOW


def workload_metrics(workload: Workload) -> QuerySet[Metric]:
    return Metric.objects.filter(workload=workload)


def compared_metrics(actor: Actor, workload_ids: Iterable[UUID], name: str) -> list[Metric]:
    """Return one metric of several visible workloads, in the order of `workload_ids`."""
    rows = Metric.objects.filter(workload__in=workloads(actor).filter(pk__in=list(workload_ids)), name=name)
    by_workload = {row.workload_id: row for row in rows.select_related("workload__project")}
    return [by_workload[pk] for pk in workload_ids if pk in by_workload]


def task_metrics(array: WorkloadArray, name: str, goal: Goal) -> QuerySet[Metric]:
    """Return the metric of each task's last attempt. Tasks without a finite value are omitted."""
    rows = Metric.objects.filter(workload__array=array, workload__superseded=False, name=name)
    return rows.filter(**{f"{goal}_value__isnull": False}).select_related("workload")


def ranked_tasks(array: WorkloadArray, name: str, goal: Goal) -> QuerySet[Metric]:
    """Return the metric of each task's last attempt, best value first."""
    order = [f"{goal}_value", "pk"] if goal == "min" else [f"-{goal}_value", "-pk"]
    return task_metrics(array, name, goal).order_by(*order)


def metric_names(array: WorkloadArray) -> list[str]:
    """Return the names of the metrics that any task of the array has reported."""
    rows = Metric.objects.filter(workload__array=array, workload__superseded=False)
    return list(rows.order_by("name").values_list("name", flat=True).distinct()[:NAMES_MAX])


def count_unread_tasks(array: WorkloadArray, now: datetime) -> int:
    """Return how many tasks have a pod that ended recently and whose log has not been read completely."""
    read = MetricsReader.objects.filter(pod=OuterRef("pk"), is_complete=True)
    pods = Pod.objects.filter(workload__array=array, workload__superseded=False, started_at__isnull=False)
    unread = pods.filter(~Exists(read), ended_at__gt=now - REPORTS_FOLLOW)
    return unread.aggregate(tasks=Count("workload", distinct=True))["tasks"] or 0


def to_series(row: Metric) -> Series:
    return Series(
        points=[Point(*pair) for pair in zip(row.steps, row.values, strict=True)],
        stride=row.stride,
        last=to_point(row.last_step, row.last_value),
        lowest=to_point(row.min_step, row.min_value),
        highest=to_point(row.max_step, row.max_value),
        not_finite=row.not_finite,
        not_finite_step=row.not_finite_step,
    )


def to_point(step: int | None, value: float | None) -> Point | None:
    return None if step is None or value is None else Point(step, value)
