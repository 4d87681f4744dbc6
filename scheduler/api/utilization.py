"""REST endpoints for measured utilization, now and over time."""

import uuid
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Annotated, Any
from uuid import UUID

from django.db.models import Q
from django.utils import timezone
from pydantic import Field
from rest_framework.request import Request
from rest_framework.response import Response

from berth.core.not_found import ObjectKind, not_found_error
from berth.db.queries.known_names import NameColumn, check_names
from berth.server.api.pagination import Order, filter_by, page
from berth.server.api.requests import ListQuery, Query, Word, parse_query
from berth.server.api.responses import ResponseModel
from berth.server.api.schema import operation
from berth.server.api.views import ApiView
from pools import selectors as machines
from pools.models import Node, NodePool
from projects import selectors
from projects.access import visible_nodes, visible_pools
from projects.known_names import unknown_pool_problem, unknown_project_problem
from projects.models import Pod, Workload
from projects.queries.idle_gpus import RUNNING_STATES, idle_since
from scheduler.api.utilization_shapes import (
    DeviceUtilizationResponse,
    UtilizationPointResponse,
    UtilizationResponse,
    serialize_devices,
    serialize_points,
    serialize_utilization,
)
from scheduler.reports.utilization import summary
from scheduler.reports.utilization.over_time import (
    LONGEST,
    choose_step,
    hourly_utilization,
    utilization_points,
)

HOUR, HOURS = 3600, 24
AMOUNTS = ("total", "allocated", "measured", "used")
BY_POOL_AND_NODE = Order("place", ("pool__name", "ordinal", "id"))
MOST_ALLOCATED_FIRST = Order("most allocated", ("gpu_milli_now", "id"), is_descending=True)
Span = Annotated[
    int,
    Field(
        ge=60,
        le=int(LONGEST.total_seconds()),
        description="Seconds of history, ending now or when the workload ended.",
    ),
]


class SpanQuery(Query):
    span: Span = HOUR


class WorkloadUtilizationQuery(SpanQuery):
    run: Annotated[int, Field(ge=1, le=2**31 - 1, description="Restrict the history to this run.")] | None = (
        None
    )


class PodUtilizationResponse(ResponseModel):
    pod: str = Field(description="ROLE-INDEX")
    run: int
    node: str
    utilization: UtilizationResponse
    devices: list[DeviceUtilizationResponse]


class WorkloadUtilizationDetailResponse(ResponseModel):
    """Utilization of one workload over time."""

    workload: str
    idle_since: datetime | None = Field(description="Time at which the allocated GPUs became idle.")
    now: UtilizationResponse
    pods: list[PodUtilizationResponse]
    step: int = Field(description="Seconds between points.")
    over_time: list[UtilizationPointResponse] = Field(description="Measured points, oldest first.")


class NodeUtilizationResponse(ResponseModel):
    node: str
    pool: str
    now: UtilizationResponse = Field(description="Total utilization of the node's pods.")
    devices: list[DeviceUtilizationResponse] = Field(
        description="All GPUs of the node. Empty if they are not measured."
    )


class NodeUtilizationDetailResponse(NodeUtilizationResponse):
    """Utilization of one node over time."""

    step: int
    over_time: list[UtilizationPointResponse]


class WorkloadUtilizationResponse(ResponseModel):
    """Utilization of one workload, summed over its pods."""

    workload: str
    id: uuid.UUID
    project: str
    pool: str | None
    idle_since: datetime | None
    now: UtilizationResponse


class PoolUtilizationResponse(ResponseModel):
    pool: str
    nodes: int = Field(description="Nodes that can host pods.")
    gpus: int = Field(description="GPUs of these nodes.")
    now: UtilizationResponse


class HourlyUtilizationResponse(ResponseModel):
    """GPU-hours in one hour. The current hour is incomplete."""

    at: datetime
    total: float
    allocated: float
    measured: float = Field(description="Allocated GPU-hours with measured utilization.")
    used: float


class ClusterUtilizationResponse(ResponseModel):
    now: UtilizationResponse
    pools: list[PoolUtilizationResponse]
    hours: list[HourlyUtilizationResponse]


class WorkloadUtilizationDetail(ApiView):
    @operation(
        "Get the allocated and used resources of a workload",
        query=WorkloadUtilizationQuery,
        response=WorkloadUtilizationDetailResponse,
    )
    def get(self, request: Request, workload_id: UUID) -> Response:
        query, now = parse_query(request, WorkloadUtilizationQuery), timezone.now()
        workload = selectors.find_workload(self.actor, workload_id)
        pods = summary.summarize_pods(summary.running_allocations().filter(pod__workload=workload), now)
        condition = Q(pod__workload=workload)
        if query.run is not None:
            condition &= Q(pod__run=query.run)
        until = workload.ended_at or now
        since = until - timedelta(seconds=query.span)
        step = choose_step(since, until, now)
        return Response(
            WorkloadUtilizationDetailResponse(
                workload=workload.handle,
                idle_since=idle_since([workload.pk], now).get(workload.pk),
                now=serialize_utilization(summary.sum_utilization(pod.use for pod in pods)),
                pods=[
                    PodUtilizationResponse(
                        pod=pod.name, run=pod.run, node=pod.node, utilization=serialize_utilization(pod.use),
                        devices=serialize_devices(pod.devices),
                    )
                    for pod in pods
                ],
                step=step,
                over_time=serialize_points(utilization_points(condition, since, until, step)),
            )
        )  # fmt: skip


class NodeUtilizationDetail(ApiView):
    @operation(
        "Get the utilization of a node, its pods and GPUs",
        query=SpanQuery,
        response=NodeUtilizationDetailResponse,
    )
    def get(self, request: Request, name: str) -> Response:
        query, now = parse_query(request, SpanQuery), timezone.now()
        node = machines.nodes().filter(name=name, pk__in=visible_nodes(self.actor)).first()
        if node is None:
            raise not_found_error(
                ObjectKind.NODE, name=name, visible=NameColumn(visible_nodes(self.actor)).list()
            )
        since = now - timedelta(seconds=query.span)
        step = choose_step(since, now, now)
        (answer,) = _serialize_nodes([node], now)
        points = serialize_points(
            utilization_points(Q(pod__node=node), since, now, step, existed_since=node.created_at)
        )
        return Response(NodeUtilizationDetailResponse(**dict(answer), step=step, over_time=points))


class NodesQuery(ListQuery):
    pool: Word | None = None


class NodeUtilizationList(ApiView):
    @operation("List the utilization of nodes", query=NodesQuery, page=NodeUtilizationResponse)
    def get(self, request: Request) -> Response:
        query, now = parse_query(request, NodesQuery), timezone.now()
        check_names(unknown_pool_problem(self.actor, query.pool))
        rows = machines.nodes().filter(pk__in=visible_nodes(self.actor))
        rows = filter_by(rows, pool__name=query.pool)
        return Response(page(rows, query, BY_POOL_AND_NODE, lambda nodes: _serialize_nodes(nodes, now)))


class WorkloadsQuery(ListQuery):
    project: Word | None = None
    pool: Word | None = None


class WorkloadUtilizationList(ApiView):
    @operation(
        "List the utilization of running workloads, most allocated GPUs first",
        query=WorkloadsQuery,
        page=WorkloadUtilizationResponse,
    )
    def get(self, request: Request) -> Response:
        query, now = parse_query(request, WorkloadsQuery), timezone.now()
        check_names(
            unknown_project_problem(self.actor, query.project), unknown_pool_problem(self.actor, query.pool)
        )
        running = Pod.objects.filter(state__in=RUNNING_STATES).values("workload")
        rows = selectors.workloads(self.actor).filter(pk__in=running)
        rows = filter_by(rows, project__name=query.project, pool__name=query.pool)
        return Response(
            page(rows, query, MOST_ALLOCATED_FIRST, lambda workloads: _serialize_workloads(workloads, now))
        )


class ClusterQuery(Query):
    pool: Annotated[Word, Field(description="Restrict the result to this pool.")] | None = None
    hours: Annotated[int, Field(ge=1, le=24 * 92, description="Hours of history.")] = HOURS


class ClusterUtilization(ApiView):
    @operation(
        "Get the utilization by pool and by hour", query=ClusterQuery, response=ClusterUtilizationResponse
    )
    def get(self, request: Request) -> Response:
        query, now = parse_query(request, ClusterQuery), timezone.now()
        check_names(unknown_pool_problem(self.actor, query.pool))
        pools = list(filter_by(visible_pools(self.actor), name=query.pool).order_by("name"))
        pool_responses = _serialize_pools(pools, now)
        return Response(
            ClusterUtilizationResponse(
                now=serialize_utilization(summary.sum_utilization(use for _, use in pool_responses)),
                pools=[answer for answer, _ in pool_responses],
                hours=_serialize_hours(pools, now, query.hours),
            )
        )


def _serialize_nodes(nodes: Sequence[Node], now: datetime) -> list[Any]:
    pods = summary.summarize_pods(summary.running_allocations().filter(node__in=nodes), now)
    devices = summary.devices_by_node(nodes, now)
    return [
        NodeUtilizationResponse(
            node=node.name,
            pool=node.pool.name,
            now=serialize_utilization(
                summary.sum_utilization(pod.use for pod in pods if pod.node_id == node.pk)
            ),
            devices=serialize_devices(devices.get(node.pk, ())),
        )
        for node in nodes
    ]


def _serialize_workloads(workloads: Sequence[Workload], now: datetime) -> list[Any]:
    pods = summary.summarize_pods(summary.running_allocations().filter(pod__workload__in=workloads), now)
    idle = idle_since([workload.pk for workload in workloads], now)
    return [
        WorkloadUtilizationResponse(
            workload=workload.handle,
            id=workload.pk,
            project=workload.project.name,
            pool=workload.pool.name if workload.pool else None,
            idle_since=idle.get(workload.pk),
            now=serialize_utilization(
                summary.sum_utilization(pod.use for pod in pods if pod.workload_id == workload.pk)
            ),
        )
        for workload in workloads
    ]


def _serialize_pools(
    pools: Sequence[NodePool], now: datetime
) -> list[tuple[PoolUtilizationResponse, summary.Utilization]]:
    pods = summary.summarize_pods(summary.running_allocations().filter(node__pool__in=pools), now)
    gpus_by_pool = {pool.pk: list[int]() for pool in pools}
    for pool_id, gpus in summary.hosting_nodes(pools):
        gpus_by_pool[pool_id].append(gpus)
    responses = []
    for pool in pools:
        use = summary.sum_utilization(pod.use for pod in pods if pod.pool == pool.name)
        node_gpus = gpus_by_pool[pool.pk]
        answer = PoolUtilizationResponse(
            pool=pool.name, nodes=len(node_gpus), gpus=sum(node_gpus), now=serialize_utilization(use)
        )  # fmt: skip
        responses.append((answer, use))
    return responses


def _serialize_hours(pools: Sequence[NodePool], now: datetime, hours: int) -> list[HourlyUtilizationResponse]:
    return [
        HourlyUtilizationResponse(at=hour.at, **{name: round(getattr(hour, name), 3) for name in AMOUNTS})
        for hour in hourly_utilization(pools, now, hours)
    ]
