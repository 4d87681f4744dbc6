"""REST endpoints of evictions, with the rule and numbers of each."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from django.db.models import Q, QuerySet
from django.http import HttpResponse, StreamingHttpResponse
from pydantic import Field
from rest_framework.request import Request
from rest_framework.response import Response

from berth.core.errors import NotFound
from berth.core.spec.quantities import Moment
from berth.server.api.pagination import NEWEST, page
from berth.server.api.requests import ListQuery, Query, Word, no_query, parse_query
from berth.server.api.responses import Answer, from_milli
from berth.server.api.schema import operation
from berth.server.api.transport.streaming import csv_file
from berth.server.api.views import ApiView
from projects import selectors as tenants
from projects.acting import Acting
from scheduler.models import Eviction
from scheduler.reports import selectors
from scheduler.reports.evictions.matrix import pairs
from scheduler.reports.evictions.rendering import RenderedEviction, render
from scheduler.reports.visibility import Reader, reader

KindWord = Literal["shrink", "consolidate", "reclaim", "preempt", "stale_gang", "drain"]
COLUMNS = (
    "id", "at", "kind", "pool", "department", "project", "workload_name", "workload", "preemptor_project",
    "preemptor_name", "preemptor_id", "victim", "preemptor", "entire_workload", "gpus", "lost_gpu_seconds",
    "rule", "cycle",
)  # fmt: skip


class EvictionsQuery(ListQuery):
    kind: KindWord | None = None
    pool: Word | None = None
    project: Word | None = None
    preemptor: Word | None = None
    workload: Word | None = None
    since: Moment | None = None
    until: Moment | None = None
    format: Literal["json", "csv"] = "json"


class EvictionAnswer(Answer):
    id: int
    at: datetime
    kind: KindWord
    pool: str
    workload: UUID | None = Field(description="Null, and its name empty, where you do not see its project.")
    workload_name: str
    project: str
    department: str
    preemptor_id: UUID | None
    preemptor_name: str
    preemptor_project: str
    victim: str = Field(
        description="Evicted workload as PROJECT/NAME; its size and project if you do not see that project."
    )
    preemptor: str = Field(
        description="Workload that it was evicted for, in the same form. Empty for a drain."
    )
    rule: str
    numbers: dict[str, Any]
    pods: list[Any]
    entire_workload: bool
    gpus: float
    lost_gpu_seconds: int
    cycle: int | None
    summary: str
    explanation: list[str] = Field(
        description="Sentences of the audit: the rule, the numbers of the queues, the cost."
    )


class Evictions(ApiView):
    @operation(
        "Evictions, newest first",
        query=EvictionsQuery,
        page=EvictionAnswer,
        media_type="text/csv",
    )
    def get(self, request: Request) -> HttpResponse | StreamingHttpResponse:
        query = parse_query(request, EvictionsQuery)
        rows = _filtered(self.acting, query)
        if query.format == "csv":
            return as_csv(request, rows, reader(self.acting))
        return Response(page(rows, query, NEWEST, presenting(self.acting)))


class MatrixQuery(Query):
    kind: KindWord | None = None
    pool: Word | None = None
    project: Word | None = None
    preemptor: Word | None = None
    since: Moment | None = None
    until: Moment | None = None
    limit: Annotated[int, Field(ge=1, le=500, description="So many pairs at most.")] = 100


class PairAnswer(Answer):
    victim_project: str
    preemptor_project: str = Field(description="Empty if there is no preemptor, as for a drain.")
    evictions: int
    gpus: float
    lost_gpu_seconds: int


class MatrixAnswer(Answer):
    pairs: list[PairAnswer] = Field(description="The most work lost first.")
    omitted: int = Field(description="Number of further pairs.")


class EvictionMatrix(ApiView):
    @operation("Evictions summed by pair of projects", query=MatrixQuery, answer=MatrixAnswer)
    def get(self, request: Request) -> Response:
        query = parse_query(request, MatrixQuery)
        every = pairs(_filtered(self.acting, query))
        answers = [
            PairAnswer(
                victim_project=pair.victim, preemptor_project=pair.preemptor, evictions=pair.count,
                gpus=from_milli(pair.gpu_milli) or 0, lost_gpu_seconds=pair.lost_gpu_seconds,
            )
            for pair in every[: query.limit]
        ]  # fmt: skip
        return Response(MatrixAnswer(pairs=answers, omitted=max(0, len(every) - query.limit)))


class OneEviction(ApiView):
    @operation("One eviction", answer=EvictionAnswer)
    def get(self, request: Request, eviction_id: int) -> Response:
        no_query(request)
        row = selectors.evictions(self.acting).filter(pk=eviction_id).first()
        if row is None:
            raise NotFound("There is no eviction with that id.")
        return Response(answer(render(reader(self.acting), [row])[0]))


class EvictionsOfWorkload(ApiView):
    @operation("Evictions of this workload, and evictions for it", query=ListQuery, page=EvictionAnswer)
    def get(self, request: Request, workload_id: UUID) -> Response:
        query = parse_query(request, ListQuery)
        workload = tenants.find_workload(self.acting, workload_id)
        rows = selectors.evictions(self.acting).filter(
            Q(workload_id=workload.pk) | Q(preemptor_id=workload.pk)
        )
        return Response(page(rows, query, NEWEST, presenting(self.acting)))


def as_csv(request: Request, rows: QuerySet[Eviction], eyes: Reader) -> StreamingHttpResponse:
    """Stream all rows as CSV, in their order."""
    shown = (answer(render(eyes, [row])[0]) for row in rows.iterator(chunk_size=1000))
    return csv_file(
        request, "evictions", COLUMNS, ([getattr(each, key) for key in COLUMNS] for each in shown)
    )


def answer(each: RenderedEviction) -> EvictionAnswer:
    row, victim, winner = each.row, each.victim, each.preemptor
    columns: Any = row
    return EvictionAnswer(
        pool=row.pool_name,
        workload=victim.id,
        workload_name=victim.name,
        project=victim.project,
        department=row.department_name if victim.seen else "",
        victim=victim.called,
        preemptor_id=winner.id if winner else None,
        preemptor_name=winner.name if winner else "",
        preemptor_project=winner.project if winner else "",
        preemptor=winner.called if winner else "",
        gpus=from_milli(row.gpu_milli) or 0,
        rule=each.rule,
        numbers=each.numbers,
        pods=each.pods,
        summary=each.summary,
        explanation=each.explanation,
        **{name: getattr(columns, name) for name in _PLAIN},
    )


def presenting(acting: Acting) -> Callable[[Sequence[Eviction]], list[Any]]:
    return lambda rows: [answer(each) for each in render(reader(acting), rows)]


def _filtered(acting: Acting, query: "EvictionsQuery | MatrixQuery") -> QuerySet[Eviction]:
    rows = selectors.evictions(acting)
    exact = {"kind": query.kind, "pool_name": query.pool, "project_name": query.project}
    rows = rows.filter(**{column: value for column, value in exact.items() if value is not None})
    if query.preemptor is not None:
        rows = rows.filter(selectors.for_workload(acting, query.preemptor))
    if isinstance(query, EvictionsQuery) and query.workload is not None:
        rows = rows.filter(selectors.of_workload(acting, query.workload))
    if query.since is not None:
        rows = rows.filter(at__gte=query.since)
    return rows if query.until is None else rows.filter(at__lte=query.until)


_PLAIN = ("id", "at", "kind", "entire_workload", "lost_gpu_seconds", "cycle")
