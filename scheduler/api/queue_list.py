"""REST endpoint for a pool's queue, with the sort keys that determine its order."""

from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import BigIntegerField
from django.utils.dateparse import parse_datetime
from pydantic import Field
from rest_framework.request import Request
from rest_framework.response import Response

from berth.server.api.pagination import Order, map_rows, page
from berth.server.api.requests import ListQuery, parse_query
from berth.server.api.responses import ResponseModel, from_milli
from berth.server.api.schema import operation
from pools.api.pools import PoolView
from scheduler.reports.queues.queue_list import NO_POSITION, NOT_EVALUATED, queue_length, queued_workloads

BY_POSITION = Order("queue", ("queue_order", "id"), computed_columns={"queue_order": BigIntegerField()})


class PendingWorkloadResponse(ResponseModel):
    queue_position: int | None = Field(
        description="Position in the pool's queue. Null until a cycle has considered the workload, and for "
        "reserved workloads."
    )
    phase: str = Field(description="pending, or reserved if nodes are reserved for the workload.")
    workload: UUID
    name: str
    project: str
    department: str
    priority: int
    gpus: float = Field(description="GPUs requested at the minimum number of replicas.")
    submitted_at: datetime
    reason: str
    message: str
    ordering: list[str] = Field(
        description="Sort keys that decided the queue position, most significant first."
    )
    expected_start: datetime | None


class QueueResponse(ResponseModel):
    workloads: int = Field(
        description="Pending workloads of the pool, including those not visible to you. An array counts as "
        "one workload; its queued tasks are separate items."
    )
    gpus: float
    items: list[PendingWorkloadResponse]
    next: str | None


class PoolQueue(PoolView):
    @operation("List the pending workloads of a pool in queue order", query=ListQuery, response=QueueResponse)
    def get(self, request: Request, name: str) -> Response:
        query = parse_query(request, ListQuery)
        pool = self.get_pool(name)
        length = queue_length(pool)
        rows = page(
            queued_workloads(self.actor, pool), query, BY_POSITION, map_rows(serialize_pending_workload)
        )
        return Response(
            QueueResponse(workloads=length.workloads, gpus=from_milli(length.gpu_milli) or 0, **rows)
        )


def serialize_pending_workload(row: Any) -> PendingWorkloadResponse:
    explanation = row.explanation or {}
    starts = explanation.get("expected_start")
    return PendingWorkloadResponse.from_row(
        row,
        queue_position=None if row.queue_position in (NO_POSITION, NOT_EVALUATED) else row.queue_position,
        workload=row.pk,
        project=row.project.name,
        department=row.project.department.name,
        gpus=from_milli(row.gpu_milli_min) or 0,
        ordering=explanation.get("ordering", []),
        expected_start=parse_datetime(starts) if starts else None,
    )
