"""REST endpoints for events and the audit log."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from rest_framework.request import Request
from rest_framework.response import Response

from berth.core.spec.values.quantities import Moment
from berth.db.queries.known_names import NameColumn, check_names, unknown_value_problem
from berth.server.api.pagination import NEWEST, Order, filter_by, map_rows, page
from berth.server.api.requests import ListQuery, Word, parse_query
from berth.server.api.responses import ResponseModel
from berth.server.api.schema import operation
from berth.server.api.views import ApiView
from projects import selectors
from projects.known_names import (
    department_history,
    department_ids,
    project_history,
    project_ids,
    unknown_department_problem,
    unknown_id_problem,
    unknown_project_problem,
    unknown_user_problem,
)
from projects.known_words import EVENT_KINDS, OBJECT_TYPES
from projects.models import Event, Project
from projects.services.audit import ACTIONS

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


class EventResponse(ResponseModel):
    id: int
    at: datetime
    kind: str
    workload: UUID | None
    project: str | None
    subject: str
    message: str
    data: dict[str, Any]
    actor: str


class AuditEntryResponse(ResponseModel):
    """Entry in the audit log."""

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
    @operation("List events, newest first", query=EventsQuery, page=EventResponse)
    def get(self, request: Request) -> Response:
        query = parse_query(request, EventsQuery)
        events = selectors.events(self.actor)
        check_names(
            unknown_project_problem(self.actor, query.project, project_history(self.actor)),
            unknown_id_problem(
                "workload", "a workload", query.workload,
                (selectors.workloads(self.actor), "pk"), (events, "workload_id"),
            ),
            unknown_value_problem("kind", query.kind, EVENT_KINDS, NameColumn(events, "kind")),
        )  # fmt: skip
        rows = filter_by(
            events,
            workload_id=query.workload, kind=query.kind, at__gte=query.since,
        )  # fmt: skip
        if query.project is not None:
            rows = rows.filter(project_id__in=project_ids(self.actor, query.project))
        return Response(page(rows, query, NEWEST, serialize_events))


class WorkloadEvents(ApiView):
    @operation("List the events of a workload, oldest first", query=ListQuery, page=EventResponse)
    def get(self, request: Request, workload_id: UUID) -> Response:
        query = parse_query(request, ListQuery)
        workload = selectors.find_workload(self.actor, workload_id)
        rows = selectors.events(self.actor).filter(workload_id=workload.pk)
        return Response(page(rows, query, OLDEST, serialize_events))


class AuditTrail(ApiView):
    @operation("List audit entries, newest first", query=AuditQuery, page=AuditEntryResponse)
    def get(self, request: Request) -> Response:
        query = parse_query(request, AuditQuery)
        entries = selectors.audit(self.actor)
        check_names(
            unknown_user_problem(self.actor, query.actor, NameColumn(entries, "actor"), path="actor"),
            unknown_project_problem(self.actor, query.project, project_history(self.actor)),
            unknown_department_problem(self.actor, query.department, department_history(self.actor)),
            unknown_value_problem("action", query.action, ACTIONS, NameColumn(entries, "action")),
            unknown_value_problem(
                "object_type", query.object_type, OBJECT_TYPES, NameColumn(entries, "object_type")
            ),
        )
        rows = filter_by(
            entries,
            actor=query.actor, action=query.action, object_type=query.object_type,
            object_name=query.object_name, at__gte=query.since, at__lte=query.until,
        )  # fmt: skip
        if query.project is not None:
            rows = rows.filter(project_id__in=project_ids(self.actor, query.project))
        if query.department is not None:
            rows = rows.filter(department_id__in=department_ids(self.actor, query.department))
        return Response(page(rows, query, NEWEST, map_rows(AuditEntryResponse.from_row)))


def serialize_events(rows: Sequence[Event]) -> list[Any]:
    """Serialize events. `project` is null if the project was deleted."""
    names = dict(Project.objects.filter(pk__in={row.project_id for row in rows}).values_list("pk", "name"))
    return [
        EventResponse.from_row(row, project=names.get(row.project_id or 0), workload=row.workload_id)
        for row in rows
    ]
