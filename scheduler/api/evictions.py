"""REST endpoints for evictions.

Each eviction includes the rule that allowed it and the values that the rule compared.
"""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from django.db.models import Q, QuerySet
from django.http import HttpResponse, StreamingHttpResponse
from pydantic import Field
from rest_framework.request import Request
from rest_framework.response import Response

from berth.core.not_found import ObjectKind, not_found_error
from berth.core.spec.values.quantities import Moment
from berth.db.queries.known_names import NameColumn, check_names
from berth.server.api.pagination import NEWEST, filter_by, page
from berth.server.api.requests import ListQuery, Query, Word, parse_query
from berth.server.api.responses import ResponseModel, from_milli
from berth.server.api.schema import operation
from berth.server.api.transport.streaming import csv_response
from berth.server.api.views import ApiView
from projects import selectors as tenants
from projects.actor import Actor
from projects.known_names import unknown_pool_problem, unknown_project_problem
from scheduler.models import Eviction
from scheduler.reports import selectors
from scheduler.reports.evictions.known_parties import unknown_party_problems
from scheduler.reports.evictions.matrix import totals_by_project_pair
from scheduler.reports.evictions.rendering import RenderedEviction, render
from scheduler.reports.visibility import Viewer, viewer_for

EvictionKindName = Literal["shrink", "consolidate", "reclaim", "preempt", "stale_gang", "drain", "cluster"]
COLUMNS = (
    "id", "at", "kind", "pool", "department", "project", "workload_name", "workload", "preemptor_project",
    "preemptor_name", "preemptor_id", "victim", "preemptor", "entire_workload", "gpus", "lost_gpu_seconds",
    "rule", "cycle",
)  # fmt: skip


class EvictionsQuery(ListQuery):
    kind: EvictionKindName | None = None
    pool: Word | None = None
    project: Word | None = None
    preemptor: Word | None = None
    workload: Word | None = None
    since: Moment | None = None
    until: Moment | None = None
    format: Literal["json", "csv"] = "json"


class EvictionResponse(ResponseModel):
    id: int
    at: datetime
    kind: EvictionKindName
    pool: str
    workload: UUID | None = Field(description="Null if you may not see the project. The name is then empty.")
    workload_name: str
    project: str
    department: str
    preemptor_id: UUID | None
    preemptor_name: str
    preemptor_project: str
    victim: str = Field(
        description="Evicted workload as PROJECT/NAME, or only its size and project if you may not see it."
    )
    preemptor: str = Field(
        description=(
            "Workload for which the victim was evicted, in the same form. Empty for the kinds `stale_gang`, "
            "`drain` and `cluster`."
        )
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
        description="Sentences that explain the rule, the queues' numbers and the lost work."
    )


class Evictions(ApiView):
    @operation(
        "List evictions, newest first",
        query=EvictionsQuery,
        page=EvictionResponse,
        media_type="text/csv",
    )
    def get(self, request: Request) -> HttpResponse | StreamingHttpResponse:
        query = parse_query(request, EvictionsQuery)
        rows = _filter_evictions(self.actor, query)
        if query.format == "csv":
            return stream_csv(request, rows, viewer_for(self.actor))
        return Response(page(rows, query, NEWEST, serializer_for(self.actor)))


class EvictionMatrixQuery(Query):
    kind: EvictionKindName | None = None
    pool: Word | None = None
    project: Word | None = None
    preemptor: Word | None = None
    since: Moment | None = None
    until: Moment | None = None
    limit: Annotated[int, Field(ge=1, le=500, description="Maximum number of pairs.")] = 100


class EvictionPairResponse(ResponseModel):
    victim_project: str
    preemptor_project: str = Field(description="Empty if there is no preemptor, for example in a drain.")
    evictions: int
    gpus: float
    lost_gpu_seconds: int


class EvictionMatrixResponse(ResponseModel):
    """Eviction totals for each pair of a victim's and a preemptor's project."""

    pairs: list[EvictionPairResponse] = Field(description="Pairs in descending order of lost work.")
    omitted: int = Field(description="Number of pairs left out because of the limit.")


class EvictionMatrix(ApiView):
    @operation(
        "Total evictions by victim project and preemptor project",
        query=EvictionMatrixQuery,
        response=EvictionMatrixResponse,
    )
    def get(self, request: Request) -> Response:
        query = parse_query(request, EvictionMatrixQuery)
        project_pairs = totals_by_project_pair(_filter_evictions(self.actor, query))
        responses = [
            EvictionPairResponse(
                victim_project=pair.victim, preemptor_project=pair.preemptor, evictions=pair.count,
                gpus=from_milli(pair.gpu_milli) or 0, lost_gpu_seconds=pair.lost_gpu_seconds,
            )
            for pair in project_pairs[: query.limit]
        ]  # fmt: skip
        return Response(
            EvictionMatrixResponse(pairs=responses, omitted=max(0, len(project_pairs) - query.limit))
        )


class EvictionDetail(ApiView):
    @operation("Get an eviction", response=EvictionResponse)
    def get(self, request: Request, eviction_id: int) -> Response:
        row = selectors.evictions(self.actor).filter(pk=eviction_id).first()
        if row is None:
            raise not_found_error(ObjectKind.EVICTION, object_id=eviction_id)
        return Response(serialize_eviction(render(viewer_for(self.actor), [row])[0]))


class WorkloadEvictions(ApiView):
    @operation("List evictions that a workload suffered or caused", query=ListQuery, page=EvictionResponse)
    def get(self, request: Request, workload_id: UUID) -> Response:
        query = parse_query(request, ListQuery)
        workload = tenants.find_workload(self.actor, workload_id)
        rows = selectors.evictions(self.actor).filter(
            Q(workload_id=workload.pk) | Q(preemptor_id=workload.pk)
        )
        return Response(page(rows, query, NEWEST, serializer_for(self.actor)))


def stream_csv(request: Request, rows: QuerySet[Eviction], viewer: Viewer) -> StreamingHttpResponse:
    """Return a CSV response that streams all rows in queryset order."""
    shown = (serialize_eviction(render(viewer, [row])[0]) for row in rows.iterator(chunk_size=1000))
    return csv_response(
        request, "evictions", COLUMNS, ([getattr(eviction, key) for key in COLUMNS] for eviction in shown)
    )


def serialize_eviction(eviction: RenderedEviction) -> EvictionResponse:
    row, victim, preemptor = eviction.row, eviction.victim, eviction.preemptor
    return EvictionResponse.from_row(
        row,
        pool=row.pool_name,
        workload=victim.id,
        workload_name=victim.name,
        project=victim.project,
        department=row.department_name if victim.is_visible else "",
        victim=victim.display_name,
        preemptor_id=preemptor.id if preemptor else None,
        preemptor_name=preemptor.name if preemptor else "",
        preemptor_project=preemptor.project if preemptor else "",
        preemptor=preemptor.display_name if preemptor else "",
        gpus=from_milli(row.gpu_milli) or 0,
        rule=eviction.rule,
        numbers=eviction.numbers,
        pods=eviction.pods,
        summary=eviction.summary,
        explanation=eviction.explanation,
    )


def serializer_for(actor: Actor) -> Callable[[Sequence[Eviction]], list[Any]]:
    return lambda rows: [serialize_eviction(eviction) for eviction in render(viewer_for(actor), rows)]


def _filter_evictions(actor: Actor, query: "EvictionsQuery | EvictionMatrixQuery") -> QuerySet[Eviction]:
    rows = selectors.evictions(actor)
    workload = query.workload if isinstance(query, EvictionsQuery) else None
    check_names(
        unknown_pool_problem(actor, query.pool, NameColumn(rows, "pool_name")),
        unknown_project_problem(actor, query.project, NameColumn(rows, "project_name")),
        *unknown_party_problems(actor, preemptor=query.preemptor, victim=workload),
    )
    rows = filter_by(
        rows, kind=query.kind, pool_name=query.pool, project_name=query.project,
        at__gte=query.since, at__lte=query.until,
    )  # fmt: skip
    if query.preemptor is not None:
        rows = rows.filter(selectors.preemptor_filter(actor, query.preemptor))
    if workload is not None:
        rows = rows.filter(selectors.victim_filter(actor, workload))
    return rows
