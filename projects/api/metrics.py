"""REST endpoints for the metrics that workloads report."""

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Annotated
from uuid import UUID

from django.utils import timezone
from pydantic import Field
from rest_framework.request import Request
from rest_framework.response import Response

from berth.core.errors import Conflict, Invalid
from berth.core.problems import Problem
from berth.server.api.pagination import Order, filter_by, map_rows, page
from berth.server.api.requests import ListQuery, Query, Word, parse_query
from berth.server.api.responses import ResponseModel
from berth.server.api.schema import operation
from berth.server.api.views import ApiView
from projects import selectors
from projects.api.workloads.schemas import PhaseName
from projects.engine.metrics import POINTS_MAX, Point
from projects.models import Metric
from projects.queries import reported_metrics
from projects.queries.reported_metrics import Goal
from projects.services.arrays.stop_rules import PREVIEW_TASKS_MAX, preview_stops

COMPARED_MAX = 20
BY_NAME = Order("name", ("name",))
RANKS = {
    "min": Order("lowest", ("min_value", "id")),
    "max": Order("highest", ("max_value", "id"), is_descending=True),
}
MetricName = Annotated[Word, Field(description="Name of the metric, for example loss.")]
PointCount = Annotated[
    int, Field(ge=0, le=POINTS_MAX, description="Maximum number of points of each metric.")
]


class MetricPointResponse(ResponseModel):
    step: int
    value: float


class MetricResponse(ResponseModel):
    """Metric that a workload reports.

    `last`, `lowest` and `highest` are exact. The points are a sample of the values.
    """

    name: str
    last: MetricPointResponse | None = Field(description="Latest report; null if no value was finite.")
    lowest: MetricPointResponse | None
    highest: MetricPointResponse | None
    not_finite: int = Field(description="Number of reports that were infinite or not a number.")
    reported_at: datetime
    steps: list[int] = Field(description="Steps of the points, in ascending order.")
    values: list[float] = Field(description="Values of the points.")


class ComparedMetricResponse(ResponseModel):
    """Metric of one of the compared workloads."""

    workload: str
    id: UUID
    project: str
    metric: MetricResponse


class MetricComparisonResponse(ResponseModel):
    items: list[ComparedMetricResponse] = Field(
        description="Visible workloads that reported the metric, in the order in which they were requested."
    )


class TaskMetricResponse(ResponseModel):
    """Metric of an array task. `best` is the task's lowest or highest value, depending on the goal."""

    index: int
    workload: str
    id: UUID
    phase: PhaseName
    best: MetricPointResponse
    metric: MetricResponse


class TaskStopResponse(ResponseModel):
    """Task that the array's stop rule would stop now."""

    index: int
    metric: str
    step: int
    value: float | None = Field(description="Best value up to the step; null if it is not a number.")
    median: float = Field(description="Median of the other tasks' best values up to the same step.")
    tasks: int = Field(description="Number of these tasks.")
    message: str


class TaskStopsResponse(ResponseModel):
    stops: list[TaskStopResponse] = Field(description="Empty for an array without a rule.")


class MetricNamesResponse(ResponseModel):
    names: list[str] = Field(description="Names of the metrics that any task has reported.")
    unread_tasks: int = Field(
        description="Number of tasks that have just ended, and whose last reports Berth has not read yet."
    )


class MetricsQuery(ListQuery):
    name: MetricName | None = None
    points: PointCount = 100


class ComparisonQuery(Query):
    workload: Annotated[tuple[UUID, ...], Field(description="IDs of the workloads.")] = ()
    name: MetricName
    points: PointCount = 100


class TaskMetricsQuery(ListQuery):
    name: MetricName
    goal: Annotated[Goal, Field(description="Whether the lowest or the highest value is best.")] = "min"
    points: PointCount = 0


class WorkloadMetrics(ApiView):
    @operation("List the metrics that a workload has reported", query=MetricsQuery, page=MetricResponse)
    def get(self, request: Request, workload_id: UUID) -> Response:
        query = parse_query(request, MetricsQuery)
        workload = selectors.find_workload(self.actor, workload_id)
        rows = filter_by(reported_metrics.workload_metrics(workload), name=query.name)
        return Response(page(rows, query, BY_NAME, map_rows(lambda row: serialize_metric(row, query.points))))


class MetricComparison(ApiView):
    @operation(
        "Compare a metric of several workloads", query=ComparisonQuery, response=MetricComparisonResponse
    )
    def get(self, request: Request) -> Response:
        query = parse_query(request, ComparisonQuery)
        if not 0 < len(query.workload) <= COMPARED_MAX:
            allowed = f"1 to {COMPARED_MAX} workloads"
            raise Invalid(
                [Problem("workload", "wrong number of workloads", str(len(query.workload)), allowed)]
            )
        rows = reported_metrics.compared_metrics(self.actor, query.workload, query.name)
        return Response(
            MetricComparisonResponse(
                items=[
                    ComparedMetricResponse(
                        workload=row.workload.name, id=row.workload_id, project=row.workload.project.name,
                        metric=serialize_metric(row, query.points),
                    )
                    for row in rows
                ]
            )
        )  # fmt: skip


class ArrayMetrics(ApiView):
    @operation(
        "List the tasks of an array by a metric, best first", query=TaskMetricsQuery,
        page=TaskMetricResponse,
    )  # fmt: skip
    def get(self, request: Request, array_id: UUID) -> Response:
        query = parse_query(request, TaskMetricsQuery)
        array = selectors.find_array(self.actor, array_id)

        def serialize(rows: Sequence[Metric]) -> list[TaskMetricResponse]:
            return [_serialize_task(row, query) for row in rows]

        rows = reported_metrics.task_metrics(array, query.name, query.goal)
        return Response(page(rows, query, RANKS[query.goal], serialize))


class ArrayMetricNames(ApiView):
    @operation("List the names of the metrics of an array", response=MetricNamesResponse)
    def get(self, request: Request, array_id: UUID) -> Response:
        array = selectors.find_array(self.actor, array_id)
        unread = reported_metrics.count_unread_tasks(array, timezone.now())
        names = reported_metrics.metric_names(array)
        return Response(MetricNamesResponse(names=names, unread_tasks=unread))


class ArrayStops(ApiView):
    @operation("List the tasks that an array's stop rule would stop now", response=TaskStopsResponse)
    def get(self, request: Request, array_id: UUID) -> Response:
        array = selectors.find_array(self.actor, array_id)
        stops = preview_stops(array)
        if stops is None:
            raise Conflict(
                f"This preview covers arrays of at most {PREVIEW_TASKS_MAX} tasks, but the array has "
                f"{array.task_count:,}. Its stop rule still applies."
            )
        items = [TaskStopResponse(**asdict(stop), message=stop.sentence) for stop in stops]
        return Response(TaskStopsResponse(stops=items))


def _serialize_task(row: Metric, query: TaskMetricsQuery) -> TaskMetricResponse:
    series, task = reported_metrics.to_series(row), row.workload
    best = _serialize_point(series.lowest if query.goal == "min" else series.highest)
    assert best is not None  # tasks without a finite value are not listed
    return TaskMetricResponse.from_row(
        task, index=task.array_index, workload=task.name, best=best,
        metric=serialize_metric(row, query.points),
    )  # fmt: skip


def serialize_metric(row: Metric, points: int) -> MetricResponse:
    series = reported_metrics.to_series(row)
    sample = series.downsample(points)
    return MetricResponse(
        name=row.name, last=_serialize_point(series.last), lowest=_serialize_point(series.lowest),
        highest=_serialize_point(series.highest), not_finite=row.not_finite, reported_at=row.reported_at,
        steps=[point.step for point in sample], values=[point.value for point in sample],
    )  # fmt: skip


def _serialize_point(point: Point | None) -> MetricPointResponse | None:
    return None if point is None else MetricPointResponse(step=point.step, value=point.value)
