# Generated from the OpenAPI document by `python -m berth.client.generate`; do not edit.
"""Response models for arrays."""

from datetime import datetime
from typing import Any

from pydantic import Field

from berth.client.models.base import Model
from berth.client.models.mixins import ArrayMixin, TaskCountsMixin
from berth.client.models.workloads import Cost, DryRun


class TaskCounts(TaskCountsMixin, Model):
    """Number of tasks in each phase. Only the last attempt of each task counts."""

    held: int = 0
    """Tasks that wait for earlier tasks. They are not counted as pending."""
    pending: int = 0
    reserved: int = 0
    starting: int = 0
    running: int = 0
    stopping: int = 0
    suspended: int = 0
    completed: int = 0
    failed: int = 0
    cancelled: int = 0


class Array(ArrayMixin, Model):
    id: str
    name: str
    project: str = ""
    department: str = ""
    state: str = ""
    """`active` until all tasks have ended; then `failed` if a task failed, otherwise `cancelled` if a task
    was cancelled, otherwise `completed`."""
    tasks: int = 0
    """Number of tasks."""
    max_running: int | None = None
    counts: TaskCounts = Field(default_factory=TaskCounts)
    priority: int = 0
    gpus: float = 0
    """GPUs that each task requests."""
    submitted_at: datetime
    submitted_by: str | None = None
    ended_at: datetime | None = None
    cost: Cost | None = None
    """Cost of all tasks; None in lists without `costs=true`, and if it is unknown."""


class ArrayChange(Model):
    """Result of changing some of an array's tasks."""

    changed: int = 0
    """Tasks that the request changed, or would change in a dry run."""
    worst: list[int] = []
    """Indexes of the tasks that `worst` chose, worst first."""
    array: Array


class ArrayDetail(Array):
    spec: dict[str, Any] = {}


class ArrayDryRun(Model):
    """Validated array, and the predicted effect of the next scheduling cycle on its tasks."""

    tasks: int | None = None
    """Number of tasks; None if the document is invalid."""
    max_running: int | None = None
    would_start: int = 0
    """Tasks that would start without evictions."""
    would_evict: int = 0
    """Tasks that would start and evict other workloads."""
    would_queue: int = 0
    """Tasks that would be queued, or wait for earlier tasks."""
    first_task: DryRun = Field(default_factory=DryRun)


class ArraySubmission(ArrayDetail):
    warnings: list[str] = []
    """Advice for the submitter, the same for all tasks."""
