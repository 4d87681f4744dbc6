"""Here one reads who gave way for whom, by which rule, with the numbers that justified it."""

import csv
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from django.db.models import Q, QuerySet
from django.http import HttpResponse, StreamingHttpResponse
from rest_framework.request import Request
from rest_framework.response import Response

from berth.api.answers import Answer, whole
from berth.api.door import Door
from berth.api.pages import NEWEST, page
from berth.api.queries import ListQuery, Word, no_query, query_of
from berth.api.schema import described
from berth.api.streaming import streamed
from berth.core.errors import NotFound
from berth.core.spec.quantities import Moment
from projects import selectors as tenants
from scheduler import selectors
from scheduler.models import Eviction

KindWord = Literal["shrink", "consolidate", "reclaim", "preempt", "stale_gang", "drain"]
COLUMNS = (
    "id", "at", "kind", "pool", "department", "project", "workload_name", "workload", "beneficiary_project",
    "beneficiary_name", "beneficiary", "whole", "gpus", "lost_gpu_seconds", "rule", "cycle",
)  # fmt: skip


class EvictionsQuery(ListQuery):
    kind: KindWord | None = None
    pool: Word | None = None
    project: Word | None = None
    beneficiary: Word | None = None
    workload: Word | None = None
    since: Moment | None = None
    until: Moment | None = None
    format: Literal["json", "csv"] = "json"


class EvictionAnswer(Answer):
    id: int
    at: datetime
    kind: KindWord
    pool: str
    workload: UUID
    workload_name: str
    project: str
    department: str
    beneficiary: UUID | None
    beneficiary_name: str
    beneficiary_project: str
    rule: str
    numbers: dict[str, Any]
    pods: list[Any]
    whole: bool
    gpus: float
    lost_gpu_seconds: int
    cycle: int | None


class Evictions(Door):
    @described(
        "Who gave way for whom, newest first", query=EvictionsQuery, page=EvictionAnswer, text="text/csv"
    )
    def get(self, request: Request) -> HttpResponse | StreamingHttpResponse:
        query = query_of(request, EvictionsQuery)
        rows = _found(selectors.evictions(self.acting), query)
        return (
            as_csv(request, rows) if query.format == "csv" else Response(page(rows, query, NEWEST, presented))
        )


class OneEviction(Door):
    @described("One eviction", answer=EvictionAnswer)
    def get(self, request: Request, eviction_id: int) -> Response:
        no_query(request)
        row = selectors.evictions(self.acting).filter(pk=eviction_id).first()
        if row is None:
            raise NotFound("There is no eviction with that id.")
        return Response(answer(row))


class EvictionsOfWorkload(Door):
    @described(
        "When this workload gave way, and when others did for it", query=ListQuery, page=EvictionAnswer
    )
    def get(self, request: Request, workload_id: UUID) -> Response:
        query = query_of(request, ListQuery)
        workload = tenants.find_workload(self.acting, workload_id)
        rows = selectors.evictions(self.acting).filter(
            Q(workload_id=workload.pk) | Q(beneficiary_id=workload.pk)
        )
        return Response(page(rows, query, NEWEST, presented))


def as_csv(request: Request, rows: QuerySet[Eviction]) -> StreamingHttpResponse:
    """The whole list, however long, as it comes out of the database."""
    writer = csv.writer(_Echo())

    def lines() -> Iterator[str]:
        yield writer.writerow(COLUMNS)
        for row in rows.order_by("-id").iterator(chunk_size=1000):
            told = answer(row)
            yield writer.writerow([_cell(getattr(told, column)) for column in COLUMNS])

    named = {"Content-Disposition": 'attachment; filename="evictions.csv"'}
    return streamed(request, lines(), "text/csv; charset=utf-8", **named)


def answer(row: Eviction) -> EvictionAnswer:
    columns: Any = row
    return EvictionAnswer(
        pool=row.pool_name,
        workload=row.workload_id,
        project=row.project_name,
        department=row.department_name,
        beneficiary=row.beneficiary_id,
        beneficiary_project=row.beneficiary_project_name,
        gpus=whole(row.gpu_milli) or 0,
        **{name: getattr(columns, name) for name in _PLAIN},
    )


def presented(rows: Sequence[Eviction]) -> list[Any]:
    return [answer(row) for row in rows]


def _found(rows: QuerySet[Eviction], query: EvictionsQuery) -> QuerySet[Eviction]:
    exact = {"kind": query.kind, "pool_name": query.pool, "project_name": query.project}
    rows = rows.filter(**{column: value for column, value in exact.items() if value is not None})
    if query.beneficiary is not None:
        rows = rows.filter(
            _one_of(query.beneficiary, "beneficiary_id", "beneficiary_name", "beneficiary_project_name")
        )
    if query.workload is not None:
        rows = rows.filter(_one_of(query.workload, "workload_id", "workload_name"))
    if query.since is not None:
        rows = rows.filter(at__gte=query.since)
    return rows if query.until is None else rows.filter(at__lte=query.until)


def _one_of(text: str, of_id: str, *names: str) -> Q:
    """By id, or by any of these names."""
    try:
        return Q(**{of_id: UUID(text)})
    except ValueError:
        return Q(*((name, text) for name in names), _connector=Q.OR)


def _cell(value: object) -> str:
    """A cell never begins a formula, whatever a workload is called."""
    text = "" if value is None else value.isoformat() if isinstance(value, datetime) else str(value)
    return f"'{text}" if text[:1] in ("=", "+", "-", "@", "\t", "\r") else text


class _Echo:
    """A file that hands every written line straight on."""

    def write(self, line: str) -> str:
        return line


_PLAIN = (
    "id", "at", "kind", "workload_name", "beneficiary_name", "rule", "numbers", "pods", "whole",
    "lost_gpu_seconds", "cycle",
)  # fmt: skip
