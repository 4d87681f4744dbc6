"""REST endpoints for pods."""

from datetime import datetime
from typing import Literal
from uuid import UUID

from django.db.models import QuerySet
from django.utils import timezone
from pydantic import Field
from rest_framework.request import Request
from rest_framework.response import Response

from berth.db.queries.known_names import check_names
from berth.server.api.pagination import Order, filter_by, map_rows, page
from berth.server.api.requests import ListQuery, Word, parse_query
from berth.server.api.responses import ResponseModel, from_milli
from berth.server.api.schema import operation
from berth.server.api.views import ApiView
from pools.engine.pod_limits import limits_in_api_units
from projects import selectors
from projects.api.workloads.schemas import PodLimitsResponse
from projects.known_names import unknown_id_problem, unknown_node_problem
from projects.models import Pod

PodStateName = Literal["starting", "running", "stopping", "succeeded", "failed", "stopped", "lost"]
NEWEST_PODS = Order("newest", ("created_at", "id"), is_descending=True)
BY_RUN_AND_ROLE = Order("place", ("run", "role", "index", "created_at", "id"))


class PodsQuery(ListQuery):
    workload: UUID | None = None
    node: Word | None = None
    state: tuple[PodStateName, ...] = ()


class PodResponse(ResponseModel):
    id: UUID
    workload: UUID
    workload_name: str
    project: str
    role: str
    index: int
    run: int
    rank: int
    node: str
    pool: str
    devices: list[int]
    gpus: float
    state: PodStateName
    since: datetime
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    stop_reason: str
    signalled_at: datetime | None = Field(description="Time at which the preemption signal was sent.")
    exit_code: int | None
    signal: int | None
    message: str
    files_until: datetime | None = Field(
        description="Time until which the node keeps the failed pod's files; null if it does not."
    )
    limits: PodLimitsResponse
    memory_peak_mib: int | None = Field(
        description="Largest memory usage in MiB; null until the node has measured it."
    )


class Pods(ApiView):
    @operation("List pods, newest first", query=PodsQuery, page=PodResponse)
    def get(self, request: Request) -> Response:
        query = parse_query(request, PodsQuery)
        check_names(
            unknown_id_problem(
                "workload", "a workload", query.workload, (selectors.workloads(self.actor), "pk")
            ),
            unknown_node_problem(self.actor, query.node),
        )
        rows = select_allocations(selectors.pods(self.actor))
        rows = filter_by(rows, workload=query.workload, node__name=query.node, state__in=query.state or None)
        return Response(page(rows, query, NEWEST_PODS, map_rows(_serialize_pod)))


class WorkloadPods(ApiView):
    @operation("List a workload's pods, including those of earlier runs", query=ListQuery, page=PodResponse)
    def get(self, request: Request, workload_id: UUID) -> Response:
        query = parse_query(request, ListQuery)
        workload = selectors.find_workload(self.actor, workload_id)
        rows = select_allocations(selectors.pods(self.actor)).filter(workload=workload)
        return Response(page(rows, query, BY_RUN_AND_ROLE, map_rows(_serialize_pod)))


def select_allocations(rows: QuerySet[Pod]) -> QuerySet[Pod]:
    return rows.select_related("allocation")


def _serialize_pod(pod: Pod) -> PodResponse:
    allocation = getattr(pod, "allocation", None)  # reverse relation defined by a scheduler model
    return PodResponse.from_row(
        pod,
        workload=pod.workload_id,
        workload_name=pod.workload.name,
        project=pod.workload.project.name,
        node=pod.node.name,
        pool=pod.node.pool.name,
        files_until=pod.files_until if pod.files_until and pod.files_until > timezone.now() else None,
        devices=list(allocation.devices) if allocation else [],
        limits=PodLimitsResponse(**limits_in_api_units(pod.limits)),
        gpus=(from_milli(allocation.gpu_milli * len(allocation.devices)) if allocation else 0) or 0,
    )
