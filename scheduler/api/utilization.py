"""REST endpoints of measured utilization, now and over time."""

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

from berth.core.errors import NotFound
from berth.core.problems import shown
from berth.server.api.pagination import Order, page
from berth.server.api.requests import ListQuery, Query, Word, parse_query
from berth.server.api.responses import Answer
from berth.server.api.schema import operation
from berth.server.api.views import ApiView
from pools import selectors as machines
from pools.models import Node, NodePool
from projects import selectors
from projects.access import visible_nodes, visible_pools
from projects.idle_gpus import RUNS, idle_since
from projects.models import Pod, Workload
from scheduler.api.utilization_shapes import (
    DeviceUseAnswer,
    UseAnswer,
    UsePointAnswer,
    device_answers,
    point_answers,
    use_answer,
)
from scheduler.reports.utilization import summary
from scheduler.reports.utilization.over_time import LONGEST, course, step_for, used_course

HOUR, HOURS = 3600, 24
AMOUNTS = ("total", "allocated", "measured", "used")
BY_PLACE = Order("place", ("pool__name", "ordinal", "id"))
MOST_HELD = Order("most held", ("gpu_milli_now", "id"), down=True)
Span = Annotated[
    int,
    Field(ge=60, le=int(LONGEST.total_seconds()), description="So many seconds back from its end, or now."),
]


class SpanQuery(Query):
    span: Span = HOUR


class OfWorkloadQuery(SpanQuery):
    run: Annotated[int, Field(ge=1, le=2**31 - 1, description="Over time, of this run only.")] | None = None


class OfPodAnswer(Answer):
    pod: str = Field(description="ROLE-INDEX")
    run: int
    node: str
    utilization: UseAnswer
    devices: list[DeviceUseAnswer]


class WorkloadUseAnswer(Answer):
    workload: str
    idle_since: datetime | None = Field(description="Since when the allocated GPUs have been idle.")
    now: UseAnswer
    pods: list[OfPodAnswer]
    step: int = Field(description="Seconds from one point to the next.")
    over_time: list[UsePointAnswer] = Field(description="Oldest first; what was not measured is missing.")


class NodeUseAnswer(Answer):
    node: str
    pool: str
    now: UseAnswer = Field(description="Of its pods.")
    devices: list[DeviceUseAnswer] = Field(description="All of its GPUs; empty: not measured.")


class OneNodeUseAnswer(NodeUseAnswer):
    step: int
    over_time: list[UsePointAnswer]


class OfWorkloadAnswer(Answer):
    workload: str
    id: uuid.UUID
    project: str
    pool: str | None
    idle_since: datetime | None
    now: UseAnswer


class OfPoolAnswer(Answer):
    pool: str
    nodes: int = Field(description="That are there and may have pods.")
    gpus: int = Field(description="Of these nodes.")
    now: UseAnswer


class HourAnswer(Answer):
    """GPU-hours of one hour, or of the present hour so far."""

    at: datetime
    total: float
    allocated: float
    measured: float = Field(description="Allocated GPU-hours with a measured utilization.")
    used: float


class ClusterUseAnswer(Answer):
    now: UseAnswer
    pools: list[OfPoolAnswer]
    hours: list[HourAnswer]


class OfWorkload(ApiView):
    @operation("Allocated and used resources of a workload", query=OfWorkloadQuery, answer=WorkloadUseAnswer)
    def get(self, request: Request, workload_id: UUID) -> Response:
        query, now = parse_query(request, OfWorkloadQuery), timezone.now()
        workload = selectors.find_workload(self.acting, workload_id)
        pods = summary.of_pods(summary.running().filter(pod__workload=workload), now)
        of = Q(pod__workload=workload)
        if query.run is not None:
            of &= Q(pod__run=query.run)
        until = workload.ended_at or now
        since = until - timedelta(seconds=query.span)
        step = step_for(since, until, now)
        return Response(
            WorkloadUseAnswer(
                workload=workload.handle,
                idle_since=idle_since([workload.pk], now).get(workload.pk),
                now=use_answer(summary.together(pod.use for pod in pods)),
                pods=[
                    OfPodAnswer(
                        pod=pod.name, run=pod.run, node=pod.node, utilization=use_answer(pod.use),
                        devices=device_answers(pod.devices),
                    )
                    for pod in pods
                ],
                step=step,
                over_time=point_answers(course(of, since, until, step)),
            )
        )  # fmt: skip


class OfNode(ApiView):
    @operation("Utilization of a node, its pods and GPUs", query=SpanQuery, answer=OneNodeUseAnswer)
    def get(self, request: Request, name: str) -> Response:
        query, now = parse_query(request, SpanQuery), timezone.now()
        node = machines.nodes().filter(name=name, pk__in=visible_nodes(self.acting)).first()
        if node is None:
            raise NotFound(f"There is no node named {shown(name)}.")
        since = now - timedelta(seconds=query.span)
        step = step_for(since, now, now)
        (answer,) = _of_nodes([node], now)
        points = point_answers(course(Q(pod__node=node), since, now, step))
        return Response(OneNodeUseAnswer(**dict(answer), step=step, over_time=points))


class NodesQuery(ListQuery):
    pool: Word | None = None


class OfNodes(ApiView):
    @operation("Utilization of nodes", query=NodesQuery, page=NodeUseAnswer)
    def get(self, request: Request) -> Response:
        query, now = parse_query(request, NodesQuery), timezone.now()
        rows = machines.nodes().filter(pk__in=visible_nodes(self.acting))
        if query.pool is not None:
            rows = rows.filter(pool__name=query.pool)
        return Response(page(rows, query, BY_PLACE, lambda nodes: _of_nodes(nodes, now)))


class WorkloadsQuery(ListQuery):
    project: Word | None = None
    pool: Word | None = None


class OfWorkloads(ApiView):
    @operation(
        "Utilization of running workloads, most allocated GPUs first",
        query=WorkloadsQuery,
        page=OfWorkloadAnswer,
    )
    def get(self, request: Request) -> Response:
        query, now = parse_query(request, WorkloadsQuery), timezone.now()
        running = Pod.objects.filter(state__in=RUNS).values("workload")
        rows = selectors.workloads(self.acting).filter(pk__in=running)
        if query.project is not None:
            rows = rows.filter(project__name=query.project)
        if query.pool is not None:
            rows = rows.filter(pool__name=query.pool)
        return Response(page(rows, query, MOST_HELD, lambda workloads: _of_workloads(workloads, now)))


class ClusterQuery(Query):
    pool: Annotated[Word, Field(description="Only of this one.")] | None = None
    hours: Annotated[int, Field(ge=1, le=24 * 92, description="So many hours back.")] = HOURS


class OfCluster(ApiView):
    @operation("Utilization by pool and by hour", query=ClusterQuery, answer=ClusterUseAnswer)
    def get(self, request: Request) -> Response:
        query, now = parse_query(request, ClusterQuery), timezone.now()
        pools = list(visible_pools(self.acting).order_by("name"))
        if query.pool is not None:
            pools = [pool for pool in pools if pool.name == query.pool]
            if not pools:
                raise NotFound(f"There is no node pool named {shown(query.pool)}.")
        of_pools = _of_pools(pools, now)
        return Response(
            ClusterUseAnswer(
                now=use_answer(summary.together(use for _, use in of_pools)),
                pools=[answer for answer, _ in of_pools],
                hours=_hours(pools, now, query.hours),
            )
        )


def _of_nodes(nodes: Sequence[Node], now: datetime) -> list[Any]:
    pods = summary.of_pods(summary.running().filter(node__in=nodes), now)
    devices = summary.devices_of(nodes, now)
    return [
        NodeUseAnswer(
            node=node.name,
            pool=node.pool.name,
            now=use_answer(summary.together(pod.use for pod in pods if pod.node_id == node.pk)),
            devices=device_answers(devices.get(node.pk, ())),
        )
        for node in nodes
    ]


def _of_workloads(workloads: Sequence[Workload], now: datetime) -> list[Any]:
    pods = summary.of_pods(summary.running().filter(pod__workload__in=workloads), now)
    idle = idle_since([workload.pk for workload in workloads], now)
    return [
        OfWorkloadAnswer(
            workload=workload.handle,
            id=workload.pk,
            project=workload.project.name,
            pool=workload.pool.name if workload.pool else None,
            idle_since=idle.get(workload.pk),
            now=use_answer(summary.together(pod.use for pod in pods if pod.workload_id == workload.pk)),
        )
        for workload in workloads
    ]


def _of_pools(pools: Sequence[NodePool], now: datetime) -> list[tuple[OfPoolAnswer, summary.Use]]:
    pods = summary.of_pods(summary.running().filter(node__pool__in=pools), now)
    there = {pool.pk: list[int]() for pool in pools}
    for pool_id, gpus in summary.hosting(pools):
        there[pool_id].append(gpus)
    answers = []
    for pool in pools:
        use = summary.together(pod.use for pod in pods if pod.pool == pool.name)
        of_nodes = there[pool.pk]
        answer = OfPoolAnswer(
            pool=pool.name, nodes=len(of_nodes), gpus=sum(of_nodes), now=use_answer(use)
        )  # fmt: skip
        answers.append((answer, use))
    return answers


def _hours(pools: Sequence[NodePool], now: datetime, hours: int) -> list[HourAnswer]:
    return [
        HourAnswer(at=each.at, **{name: round(getattr(each, name), 3) for name in AMOUNTS})
        for each in used_course(pools, now, hours)
    ]
