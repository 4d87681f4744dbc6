"""Charts of the metrics that a workload reports, compared with another workload's metrics."""

import math
import uuid
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Any

from django.http import HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_GET

from berth.server.web.charts.lines import LineChart, line_chart
from berth.server.web.numbers import NO_VALUE
from berth.server.web.pages import Request, signed_in
from projects.actor import Actor
from projects.engine.metrics import Point, Series
from projects.models import Metric, Workload
from projects.queries.reported_metrics import can_metrics_change, to_series, workload_metrics
from projects.selectors import find_workload, workloads

POINTS = 200
MAX_DISTANCE = 3  # maximum distance between connected points, as a multiple of the median distance
CANDIDATES_MAX = 50


@dataclass(frozen=True, slots=True)
class MetricChart:
    """Chart of one metric, with its numbers as text.

    `other` is the last value of the workload that this workload is compared with.
    """

    name: str
    chart: LineChart
    last: str
    step: str
    lowest: str
    highest: str
    other: str
    not_finite: int

    @property
    def label(self) -> str:
        return f"{self.name}: {self.last} at step {self.step}, lowest {self.lowest}, highest {self.highest}"


@signed_in
@require_GET
def charts(request: Request, workload_id: uuid.UUID) -> HttpResponse:
    """Return the part of the metrics tab that is refreshed while the workload runs."""
    workload = find_workload(request.actor, workload_id)
    return render(request, "scheduler/workloads/metrics_charts.html", load_metrics(request, workload))


def load_metrics(request: Request, workload: Workload) -> dict[str, Any]:
    rows = list(workload_metrics(workload).order_by("name"))
    other = _compared_workload(request, workload)
    compared = {row.name: to_series(row) for row in workload_metrics(other)} if other else {}
    return {
        "workload": workload,
        "charts": [_build_chart(row, workload, other, compared.get(row.name)) for row in rows],
        "reported_at": max((row.reported_at for row in rows), default=None),
        "other": other,
        "candidates": _comparison_candidates(request.actor, workload) if rows else [],
        "address": reverse("workload-metric-charts", args=[workload.pk]),
        "live": can_metrics_change(workload.ended_at, timezone.now()),
    }


def _compared_workload(request: Request, workload: Workload) -> Workload | None:
    try:
        chosen = uuid.UUID(request.GET.get("with", ""))
    except ValueError:
        return None
    return workloads(request.actor).filter(pk=chosen).exclude(pk=workload.pk).first()


def _comparison_candidates(actor: Actor, workload: Workload) -> list[Workload]:
    """Return the newest workloads of the project, or other tasks of the array, that report metrics."""
    rows = workloads(actor).filter(project=workload.project, metrics__isnull=False).exclude(pk=workload.pk)
    if workload.array_id:
        rows = rows.filter(array=workload.array_id)
    return list(rows.distinct().order_by("-submitted_at", "-id")[:CANDIDATES_MAX])


def _build_chart(
    row: Metric, workload: Workload, other: Workload | None, compared: Series | None
) -> MetricChart:
    series = to_series(row)
    lines = [(workload.name, "", _points_with_gaps(series))]
    if other is not None and compared is not None:
        lines.append((other.name, "hue-1", _points_with_gaps(compared)))
    return MetricChart(
        name=row.name, chart=line_chart(lines), last=format_point(series.last),
        step=NO_VALUE if series.last is None else f"{series.last.step}",
        lowest=format_point(series.lowest), highest=format_point(series.highest),
        other=format_point(compared.last if compared else None), not_finite=series.not_finite,
    )  # fmt: skip


def _points_with_gaps(series: Series) -> list[tuple[int, float | None]]:
    """Return a metric's points for a chart. Values that are not finite appear as gaps."""
    points: list[tuple[int, float | None]] = []
    reported = series.downsample(POINTS)
    distances = [after.step - before.step for before, after in pairwise(reported)]
    usual = median(distances) if distances and series.not_finite else math.inf
    for point, distance in zip(reported, [*distances, 0], strict=False):
        points.append(point)
        if distance > MAX_DISTANCE * usual:
            points.append((point.step + 1, None))
    return points


def format_point(point: Point | None) -> str:
    return NO_VALUE if point is None else f"{point.value:.6g}"
