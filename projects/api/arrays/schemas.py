"""REST models for arrays."""

from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any, Literal
from uuid import UUID

from django.conf import settings
from django.utils import timezone
from pydantic import Field

from berth.server.api.responses import ResponseModel, from_milli
from projects.api.workloads.schemas import CostResponse, DryRunResponse
from projects.models import WorkloadArray
from projects.queries.costs import array_costs
from projects.services.arrays import TaskCounts, count_tasks_by_array

ArrayStateName = Literal["active", "completed", "failed", "cancelled"]


class TaskCountsResponse(ResponseModel):
    """Number of tasks in each phase. Only the last attempt of each task counts."""

    held: int = Field(description="Tasks that wait for earlier tasks. They are not counted as pending.")
    pending: int
    reserved: int
    starting: int
    running: int
    stopping: int
    suspended: int
    completed: int
    failed: int
    cancelled: int


class ArrayResponse(ResponseModel):
    id: UUID
    name: str
    project: str
    department: str
    state: ArrayStateName = Field(
        description="`active` until all tasks have ended; then `failed` if a task failed, otherwise "
        "`cancelled` if a task was cancelled, otherwise `completed`."
    )
    tasks: int = Field(description="Number of tasks.")
    max_running: int | None
    counts: TaskCountsResponse
    priority: int
    gpus: float = Field(description="GPUs that each task requests.")
    submitted_at: datetime
    submitted_by: str | None
    ended_at: datetime | None
    cost: CostResponse | None = Field(
        description="Cost of all tasks; null in lists without `costs=true`, and if it is unknown."
    )


class ArrayDetailResponse(ArrayResponse):
    spec: dict[str, Any]


class ArraySubmissionResponse(ArrayDetailResponse):
    warnings: list[str] = Field(description="Advice for the submitter, the same for all tasks.")


class ArrayDryRunResponse(ResponseModel):
    """Validated array, and the predicted effect of the next scheduling cycle on its tasks."""

    tasks: int | None = Field(description="Number of tasks; null if the document is invalid.")
    max_running: int | None
    would_start: int = Field(description="Tasks that would start without evictions.")
    would_evict: int = Field(description="Tasks that would start and evict other workloads.")
    would_queue: int = Field(description="Tasks that would be queued, or wait for earlier tasks.")
    first_task: DryRunResponse


class ArrayChangeResponse(ResponseModel):
    """Result of changing some of an array's tasks."""

    changed: int = Field(description="Tasks that the request changed, or would change in a dry run.")
    worst: list[int] = Field(description="Indexes of the tasks that `worst` chose, worst first.")
    array: ArrayResponse


def serialize_arrays(rows: Sequence[WorkloadArray], *, with_costs: bool = False) -> list[ArrayResponse]:
    """Serialize arrays for lists, without their documents."""
    counts = count_tasks_by_array(rows)
    costs = array_costs([row.pk for row in rows], timezone.now()) if with_costs else {}
    return [
        ArrayResponse.from_row(row, **_array_fields(row, counts[row.pk], costs.get(row.pk))) for row in rows
    ]


def serialize_array(row: WorkloadArray) -> ArrayDetailResponse:
    return ArrayDetailResponse.from_row(row, **_detail_values(row))


def serialize_submission(row: WorkloadArray, warnings: list[str]) -> ArraySubmissionResponse:
    values = _array_fields(row, count_tasks_by_array([row])[row.pk], None)
    return ArraySubmissionResponse.from_row(row, warnings=warnings, **values)


def _detail_values(row: WorkloadArray) -> dict[str, Any]:
    cost = array_costs([row.pk], timezone.now()).get(row.pk)
    return _array_fields(row, count_tasks_by_array([row])[row.pk], cost)


def _array_fields(row: WorkloadArray, counts: TaskCounts, cost: Decimal | None) -> dict[str, Any]:
    return {
        "cost": None if cost is None else CostResponse(amount=cost, currency=settings.BERTH_CURRENCY),
        "project": row.project.name,
        "department": row.project.department.name,
        "tasks": row.task_count,
        "counts": TaskCountsResponse.from_row(counts),
        "gpus": from_milli(row.gpu_milli_min) or 0,
        "submitted_by": row.submitted_by.username if row.submitted_by else None,
    }
