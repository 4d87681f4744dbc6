"""REST endpoints of pods."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from django.db.models import QuerySet
from rest_framework.request import Request
from rest_framework.response import Response

from berth.server.api.pagination import Order, page
from berth.server.api.requests import ListQuery, Word, parse_query
from berth.server.api.responses import Answer, from_milli
from berth.server.api.schema import operation
from berth.server.api.views import ApiView
from projects import selectors
from projects.models import Pod

StateWord = Literal["starting", "running", "stopping", "succeeded", "failed", "stopped", "lost"]
NEWEST_POD = Order("newest", ("created_at", "id"), down=True)
BY_PLACE = Order("place", ("run", "role", "index", "created_at", "id"))


class PodsQuery(ListQuery):
    workload: UUID | None = None
    node: Word | None = None
    state: tuple[StateWord, ...] = ()


class PodAnswer(Answer):
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
    state: StateWord
    since: datetime
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    stop_reason: str
    exit_code: int | None
    signal: int | None
    message: str


class Pods(ApiView):
    @operation("List pods, newest first", query=PodsQuery, page=PodAnswer)
    def get(self, request: Request) -> Response:
        query = parse_query(request, PodsQuery)
        rows = with_devices(selectors.pods(self.acting))
        if query.workload is not None:
            rows = rows.filter(workload=query.workload)
        if query.node is not None:
            rows = rows.filter(node__name=query.node)
        if query.state:
            rows = rows.filter(state__in=query.state)
        return Response(page(rows, query, NEWEST_POD, presented))


class PodsOfWorkload(ApiView):
    @operation("List the pods of a workload, all runs included", query=ListQuery, page=PodAnswer)
    def get(self, request: Request, workload_id: UUID) -> Response:
        query = parse_query(request, ListQuery)
        workload = selectors.find_workload(self.acting, workload_id)
        rows = with_devices(selectors.pods(self.acting)).filter(workload=workload)
        return Response(page(rows, query, BY_PLACE, presented))


def with_devices(rows: QuerySet[Pod]) -> QuerySet[Pod]:
    return rows.select_related("allocation")


def presented(rows: Sequence[Pod]) -> list[Any]:
    return [_answer(row) for row in rows]


def _answer(pod: Pod) -> PodAnswer:
    held = getattr(pod, "allocation", None)  # a row of the scheduler's tables, one per pod
    own = {name: getattr(pod, name) for name in _OWN}
    return PodAnswer(
        workload=pod.workload_id,
        workload_name=pod.workload.name,
        project=pod.workload.project.name,
        node=pod.node.name,
        pool=pod.node.pool.name,
        devices=list(held.devices) if held else [],
        gpus=(from_milli(held.gpu_milli * len(held.devices)) if held else 0) or 0,
        **own,
    )


_OWN = (
    "id", "role", "index", "run", "rank", "state", "since", "created_at", "started_at", "ended_at",
    "stop_reason", "exit_code", "signal", "message",
)  # fmt: skip
