# Generated from the OpenAPI document by `python -m berth.client.generate`; do not edit.
"""Response models for metrics."""

from datetime import datetime

from pydantic import Field

from berth.client.models.base import Model


class MetricPoint(Model):
    step: int = 0
    value: float = 0


class Metric(Model):
    """Metric that a workload reports.  `last`, `lowest` and `highest` are exact. The points are a sample
    of the values."""

    name: str
    last: MetricPoint | None = None
    """Latest report; None if no value was finite."""
    lowest: MetricPoint | None = None
    highest: MetricPoint | None = None
    not_finite: int = 0
    """Number of reports that were infinite or not a number."""
    reported_at: datetime
    steps: list[int] = []
    """Steps of the points, in ascending order."""
    values: list[float] = []
    """Values of the points."""


class ComparedMetric(Model):
    """Metric of one of the compared workloads."""

    workload: str = ""
    id: str
    project: str = ""
    metric: Metric


class MetricComparison(Model):
    items: list[ComparedMetric] = []
    """Visible workloads that reported the metric, in the order in which they were requested."""


class MetricNames(Model):
    names: list[str] = []
    """Names of the metrics that any task has reported."""
    unread_tasks: int = 0
    """Number of tasks that have just ended, and whose last reports Berth has not read yet."""


class TaskMetric(Model):
    """Metric of an array task. `best` is the task's lowest or highest value, depending on the goal."""

    index: int = 0
    workload: str = ""
    id: str
    phase: str = ""
    best: MetricPoint = Field(default_factory=MetricPoint)
    metric: Metric


class TaskStop(Model):
    """Task that the array's stop rule would stop now."""

    index: int = 0
    metric: str = ""
    step: int = 0
    value: float | None = None
    """Best value up to the step; None if it is not a number."""
    median: float = 0
    """Median of the other tasks' best values up to the same step."""
    tasks: int = 0
    """Number of these tasks."""
    message: str = ""


class TaskStops(Model):
    stops: list[TaskStop] = []
    """Empty for an array without a rule."""
