"""REST endpoint for GPU-hours and cost over time."""

import base64
import binascii
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, Literal

from django.http import HttpResponse, StreamingHttpResponse
from django.utils import timezone
from pydantic import Field
from rest_framework.request import Request
from rest_framework.response import Response

from berth.core.errors import Invalid
from berth.core.problems import Problem
from berth.core.spec.values.quantities import Moment
from berth.db.queries.known_names import check_names
from berth.server.api.requests import ListQuery, Word, parse_query
from berth.server.api.responses import ResponseModel
from berth.server.api.schema import operation
from berth.server.api.transport.streaming import csv_response
from berth.server.api.views import ApiView
from scheduler.reports.usage.known_names import unknown_name_problems
from scheduler.reports.usage.query import usage_request
from scheduler.reports.usage.report import UsageDimension, UsageRequest, UsageRow, sum_rows, usage_report

DimensionName = Literal["department", "project", "user", "pool"]
AMOUNTS = ("gpu_hours", "cpu_hours", "memory_gib_hours", "cost")


class UsageQuery(ListQuery):
    since: Moment | None = None
    until: Moment | None = None
    group_by: tuple[DimensionName, ...] = ()
    step: Literal["hour", "day", "week", "month"] | None = None
    time_zone: Annotated[
        Word | None, Field(description="Time zone for days, weeks and months. Defaults to UTC.")
    ] = None
    department: Word | None = None
    project: Word | None = None
    user: Word | None = None
    pool: Word | None = None
    format: Literal["json", "csv"] = "json"


class UsageRowResponse(ResponseModel):
    """Usage in GPU-hours, core-hours and GiB-hours."""

    at: datetime | None = Field(description="Start of the interval; null without a step.")
    department: str | None = None
    project: str | None = None
    user: str | None = Field(None, description="Submitter; empty for Berth's own workloads.")
    pool: str | None = None
    gpu_hours: float
    cpu_hours: float
    memory_gib_hours: float
    cost: float | None = Field(description="Cost of the GPU-hours in the currency used for pool prices.")


class UsageReportResponse(ResponseModel):
    since: datetime
    until: datetime
    total: UsageRowResponse
    items: list[UsageRowResponse]
    next: str | None


class UsageReport(ApiView):
    @operation(
        "Report allocated hours and their cost over time", query=UsageQuery, response=UsageReportResponse
    )
    def get(self, request: Request) -> HttpResponse | StreamingHttpResponse:
        query = parse_query(request, UsageQuery)
        now = timezone.now()
        report_request = usage_request(
            now, since=query.since, until=query.until, group_by=query.group_by, step=query.step,
            time_zone=query.time_zone,
            only={word: getattr(query, word) for word in UsageDimension},
        )  # fmt: skip
        check_names(*unknown_name_problems(self.actor, report_request.only))
        rows = usage_report(self.actor, report_request, now)
        if query.format == "csv":
            return stream_csv(request, report_request, rows)
        begin = _parse_cursor(query.cursor)
        end = begin + query.limit
        return Response(
            UsageReportResponse(
                since=report_request.since,
                until=report_request.until,
                total=serialize_row(sum_rows(rows)),
                items=[serialize_row(row) for row in rows[begin:end]],
                next=_format_cursor(end) if end < len(rows) else None,
            )
        )


def stream_csv(
    request: Request, report_request: UsageRequest, rows: Sequence[UsageRow]
) -> StreamingHttpResponse:
    columns = [*(["at"] if report_request.step else []), *report_request.group_by, *AMOUNTS]
    responses = (serialize_row(row) for row in rows)
    return csv_response(
        request, "usage", columns, ([getattr(row, key) for key in columns] for row in responses)
    )


def serialize_row(used: UsageRow) -> UsageRowResponse:
    names: dict[str, Any] = {str(key): name for key, name in used.names.items()}
    return UsageRowResponse(
        at=used.at,
        gpu_hours=round(used.gpu_hours, 4),
        cpu_hours=round(used.cpu_hours, 4),
        memory_gib_hours=round(used.memory_gib_hours, 4),
        cost=None if used.cost is None else float(used.cost),
        **names,
    )


def _format_cursor(position: int) -> str:
    return base64.urlsafe_b64encode(f"usage {position}".encode()).decode().rstrip("=")


def _parse_cursor(cursor: str | None) -> int:
    """Return the index of the page's first row."""
    if cursor is None:
        return 0
    try:
        text = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True).decode()
        word, _, number = text.partition(" ")
        if word == "usage" and number.isascii() and number.isdigit():
            return int(number)
    except (ValueError, binascii.Error):
        pass
    allowed = "`next` of an earlier page of the same report"
    raise Invalid([Problem("cursor", "is not a valid cursor for this report", "", allowed)])
