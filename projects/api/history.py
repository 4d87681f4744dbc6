"""REST endpoints of events and audit."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from rest_framework.request import Request
from rest_framework.response import Response

from berth.core.spec.quantities import Moment
from berth.server.api.pagination import NEWEST, Order, page
from berth.server.api.requests import ListQuery, Word, parse_query
from berth.server.api.responses import Answer
from berth.server.api.schema import operation
from berth.server.api.views import ApiView
from projects import selectors
from projects.models import Audit, Event, Project

OLDEST = Order("oldest", ("id",))


class EventsQuery(ListQuery):
    workload: UUID | None = None
    project: Word | None = None
    kind: Word | None = None
    since: Moment | None = None


class AuditQuery(ListQuery):
    actor: Word | None = None
    action: Word | None = None
    object_type: Word | None = None
    object_name: Word | None = None
    project: Word | None = None
    department: Word | None = None
    since: Moment | None = None
    until: Moment | None = None


class EventAnswer(Answer):
    id: int
    at: datetime
    kind: str
    workload: UUID | None
    project: str | None
    subject: str
    message: str
    data: dict[str, Any]
    actor: str


class AuditAnswer(Answer):
    id: int
    at: datetime
    actor: str
    action: str
    object_type: str
    object_id: str
    object_name: str
    before: Any
    after: Any
    request_id: str


class Events(ApiView):
    @operation("List events, newest first", query=EventsQuery, page=EventAnswer)
    def get(self, request: Request) -> Response:
        query = parse_query(request, EventsQuery)
        rows = selectors.events(self.acting)
        if query.workload is not None:
            rows = rows.filter(workload_id=query.workload)
        if query.project is not None:
            rows = rows.filter(
                project_id__in=selectors.projects(self.acting).filter(name=query.project).values("pk")
            )
        if query.kind is not None:
            rows = rows.filter(kind=query.kind)
        if query.since is not None:
            rows = rows.filter(at__gte=query.since)
        return Response(page(rows, query, NEWEST, presented))


class EventsOfWorkload(ApiView):
    @operation("List the events of a workload, oldest first", query=ListQuery, page=EventAnswer)
    def get(self, request: Request, workload_id: UUID) -> Response:
        query = parse_query(request, ListQuery)
        workload = selectors.find_workload(self.acting, workload_id)
        rows = selectors.events(self.acting).filter(workload_id=workload.pk)
        return Response(page(rows, query, OLDEST, presented))


class AuditTrail(ApiView):
    @operation("List audit entries, newest first", query=AuditQuery, page=AuditAnswer)
    def get(self, request: Request) -> Response:
        query = parse_query(request, AuditQuery)
        rows = selectors.audit(self.acting)
        exact = {name: getattr(query, name) for name in ("actor", "action", "object_type", "object_name")}
        rows = rows.filter(**{column: value for column, value in exact.items() if value is not None})
        if query.project is not None:
            rows = rows.filter(
                project_id__in=selectors.projects(self.acting).filter(name=query.project).values("pk")
            )
        if query.department is not None:
            seen = selectors.departments(self.acting).filter(name=query.department)
            rows = rows.filter(department_id__in=seen.values("pk"))
        if query.since is not None:
            rows = rows.filter(at__gte=query.since)
        if query.until is not None:
            rows = rows.filter(at__lte=query.until)
        return Response(page(rows, query, NEWEST, lambda rows: [_change(row) for row in rows]))


def presented(rows: Sequence[Event]) -> list[Any]:
    """Present events; `project` is null if the project was deleted."""
    names = dict(Project.objects.filter(pk__in={row.project_id for row in rows}).values_list("pk", "name"))
    return [
        EventAnswer(
            project=names.get(row.project_id or 0),
            workload=row.workload_id,
            **{name: getattr(row, name) for name in _OWN},
        )
        for row in rows
    ]


_OWN = ("id", "at", "kind", "subject", "message", "data", "actor")


def _change(row: Audit) -> AuditAnswer:
    return AuditAnswer(**{name: getattr(row, name) for name in AuditAnswer.model_fields})
