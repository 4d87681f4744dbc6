"""REST endpoints for schedules."""

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from django.utils import timezone
from pydantic import Field
from rest_framework.request import Request
from rest_framework.response import Response

from berth.core.errors import Invalid
from berth.core.not_found import ObjectKind, not_found_error
from berth.core.problems import Problem
from berth.core.spec.values.texts import Text
from berth.db.queries.known_names import check_names
from berth.documents.ordered import dump_workload
from berth.server.api.idempotency import idempotent
from berth.server.api.pagination import Order, filter_by, map_rows, page
from berth.server.api.requests import (
    Body,
    ListQuery,
    NoBody,
    Word,
    etag,
    expected_version,
    parse_body,
    parse_query,
)
from berth.server.api.responses import ResponseModel, created_response, no_content
from berth.server.api.schema import operation
from berth.server.api.views import ApiView
from projects import selectors
from projects.known_names import unknown_project_problem
from projects.models import Project, Schedule, ScheduleRun
from projects.services import schedules

BY_NAME = Order("name", ("project__name", "name", "id"))
NEWEST_FIRST = Order("newest", ("due_at", "id"), is_descending=True)
PRECONDITION_HEADERS = ("If-Match", "If-None-Match")
NEXT_RUNS = 5
OverlapName = Literal["skip", "queue", "replace"]


class ScheduleBody(Body):
    """Settings of a schedule.

    The workload document is an object in `document`, YAML in `text`, or the template named by `template`.
    """

    cron: Annotated[Text, Field(description="Five cron fields, or a nickname such as @daily.")]
    time_zone: Text = "UTC"
    overlap: Annotated[
        OverlapName,
        Field(description="If the previous run has not ended: skip, queue, or replace (cancel) it."),
    ] = "skip"
    document: dict[str, Any] | None = None
    text: str | None = None
    template: Text | None = None


class ScheduleResponse(ResponseModel):
    name: str
    project: str
    cron: str
    time_zone: str
    overlap: OverlapName
    template: str | None = Field(description="Null if the schedule has a document of its own.")
    owner: str | None = Field(description="User whose permissions the runs use.")
    next_at: datetime | None = Field(description="Next due time; null while paused.")
    paused_at: datetime | None
    pause_message: str
    changed_by: str
    changed_at: datetime
    version: int


class ScheduleDetailResponse(ScheduleResponse):
    text: str | None = Field(description="Workload document in YAML; null if a template is named.")
    next_runs: list[datetime] = Field(description=f"The next {NEXT_RUNS} due times; empty while paused.")


class ScheduleRunResponse(ResponseModel):
    id: int
    due_at: datetime
    outcome: Literal["submitted", "queued", "skipped", "rejected"]
    message: str
    started_by: str | None = Field(description="User who started the run manually; null for scheduled runs.")
    workload: str | None = Field(description="Name of the workload or array; null if it was deleted.")
    workload_id: UUID | None
    array_id: UUID | None
    phase: str | None = Field(description="Current phase or, for an array, current state.")


class SchedulesQuery(ListQuery):
    project: Word | None = None


class Schedules(ApiView):
    @operation("List schedules", query=SchedulesQuery, page=ScheduleResponse)
    def get(self, request: Request) -> Response:
        query = parse_query(request, SchedulesQuery)
        check_names(unknown_project_problem(self.actor, query.project))
        rows = filter_by(selectors.schedules(self.actor), project__name=query.project)
        return Response(page(rows, query, BY_NAME, map_rows(serialize_list_row)))


class ProjectSchedules(ApiView):
    @operation("List a project's schedules", query=ListQuery, page=ScheduleResponse)
    def get(self, request: Request, name: str) -> Response:
        query = parse_query(request, ListQuery)
        project = selectors.find_project(self.actor, name)
        rows = selectors.schedules(self.actor).filter(project=project)
        return Response(page(rows, query, BY_NAME, map_rows(serialize_list_row)))


class ScheduleView(ApiView):
    """Base view for one schedule."""

    def find(self, name: str, schedule: str) -> Schedule:
        project = selectors.find_project(self.actor, name)
        row = self.find_schedule_or_none(project, schedule)
        if row is None:
            names = selectors.schedules(self.actor).filter(project=project).values_list("name", flat=True)
            raise not_found_error(ObjectKind.SCHEDULE, name=schedule, owner=name, visible=names)
        return row

    def find_schedule_or_none(self, project: Project, schedule: str) -> Schedule | None:
        return selectors.schedules(self.actor).filter(project=project, name=schedule).first()


class ScheduleDetail(ScheduleView):
    @operation("Get a schedule with its next due times", response=ScheduleDetailResponse)
    def get(self, request: Request, name: str, schedule: str) -> Response:
        row = self.find(name, schedule)
        return Response(serialize_schedule(row), headers={"ETag": etag(row.version)})

    @operation(
        "Set a schedule",
        body=ScheduleBody,
        response=ScheduleDetailResponse,
        headers=PRECONDITION_HEADERS,
        also_status=201,
    )
    def put(self, request: Request, name: str, schedule: str) -> Response:
        project = selectors.find_project(self.actor, name)
        self.require("submit", project)
        existing = self.find_schedule_or_none(project, schedule)
        expected = expected_version(request, existing.version if existing else None)
        stored = schedules.set_schedule(
            actor=self.actor,
            project=project,
            name=schedule,
            values=_schedule_values(parse_body(request, ScheduleBody)),
            expected_version=expected,
        )
        tag = etag(stored.version)
        if existing is None:
            path = f"/api/v1/projects/{name}/schedules/{schedule}"
            return created_response(serialize_schedule(stored), path, ETag=tag)
        return Response(serialize_schedule(stored), headers={"ETag": tag})

    @operation("Delete a schedule", status=204, headers=("If-Match",))
    def delete(self, request: Request, name: str, schedule: str) -> Response:
        row = self.find(name, schedule)
        schedules.require_change_permission(self.actor, row)
        expected = expected_version(request, row.version)
        schedules.delete_schedule(actor=self.actor, schedule=row, expected_version=expected)
        return no_content()


class PauseSchedule(ScheduleView):
    @operation("Pause a schedule", response=ScheduleDetailResponse)
    @idempotent
    def post(self, request: Request, name: str, schedule: str) -> Response:
        parse_body(request, NoBody)
        row = self.find(name, schedule)
        return Response(serialize_schedule(schedules.pause_schedule(actor=self.actor, schedule=row)))


class ResumeSchedule(ScheduleView):
    @operation("Resume a paused schedule", response=ScheduleDetailResponse)
    @idempotent
    def post(self, request: Request, name: str, schedule: str) -> Response:
        parse_body(request, NoBody)
        row = self.find(name, schedule)
        return Response(serialize_schedule(schedules.resume_schedule(actor=self.actor, schedule=row)))


class RunSchedule(ScheduleView):
    @operation("Submit a run of a schedule now", response=ScheduleRunResponse, status=201)
    @idempotent
    def post(self, request: Request, name: str, schedule: str) -> Response:
        parse_body(request, NoBody)
        run = schedules.run_now(actor=self.actor, schedule=self.find(name, schedule))
        return created_response(serialize_run(run), f"/api/v1/projects/{name}/schedules/{schedule}/runs")


class ScheduleRuns(ScheduleView):
    @operation("List the runs of a schedule, newest first", query=ListQuery, page=ScheduleRunResponse)
    def get(self, request: Request, name: str, schedule: str) -> Response:
        query = parse_query(request, ListQuery)
        rows = self.find(name, schedule).runs.select_related("workload", "array")
        return Response(page(rows, query, NEWEST_FIRST, map_rows(serialize_run)))


def serialize_list_row(row: Schedule) -> ScheduleResponse:
    return ScheduleResponse.from_row(row, **_row_values(row))


def serialize_schedule(row: Schedule) -> ScheduleDetailResponse:
    next_runs = schedules.next_run_times(row, NEXT_RUNS, timezone.now())
    values = {**_row_values(row), "text": row.text or None}
    return ScheduleDetailResponse.from_row(row, next_runs=next_runs, **values)


def serialize_run(row: ScheduleRun) -> ScheduleRunResponse:
    target = row.workload or row.array
    phase = row.workload.phase if row.workload else row.array.state if row.array else None
    return ScheduleRunResponse.from_row(
        row, workload=target and target.name, phase=phase, started_by=row.started_by or None
    )


def _row_values(row: Schedule) -> dict[str, Any]:
    owner = row.owner.get_username() if row.owner else None
    return {"project": row.project.name, "template": row.template or None, "owner": owner}


def _schedule_values(body: ScheduleBody) -> schedules.ScheduleValues:
    sources = [name for name in ("document", "text", "template") if getattr(body, name) is not None]
    if len(sources) != 1:
        received = ", ".join(sources) or "none"
        raise Invalid([Problem("document", "needs one source", received, "one of document, text, template")])
    text = dump_workload(body.document) if body.document is not None else body.text or ""
    return schedules.ScheduleValues(
        cron=body.cron,
        time_zone=body.time_zone,
        overlap=body.overlap,
        text=text,
        template=body.template or "",
    )
