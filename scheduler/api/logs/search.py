"""REST endpoint that searches a pod's log."""

import re
from typing import Annotated
from uuid import UUID

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError
from rest_framework.request import Request
from rest_framework.response import Response

from berth.core.spec.values.texts import validate_line
from berth.server.api.requests import Query, Word, parse_query
from berth.server.api.responses import ResponseModel
from berth.server.api.schema import operation
from berth.server.api.views import ApiView
from projects import selectors
from scheduler.api.logs.endpoint import MAX_RUN
from scheduler.api.logs.pod_log import find_latest_log
from scheduler.reports import log_search
from scheduler.reports.log_search import MAX_CONTEXT_LINES, MAX_TEXT_LENGTH, LinePosition, MatchingLine

CURSOR = re.compile(r"(\d{1,16})-(\d{1,16})")


def _check_cursor(text: str) -> str:
    if CURSOR.fullmatch(text) is None:
        raise PydanticCustomError(
            "cursor", "is not a valid search cursor", {"allowed": "`next` of the previous search"}
        )
    return text


class LogSearchQuery(Query):
    text: Annotated[
        str, Field(min_length=1, max_length=MAX_TEXT_LENGTH, description="Literal text, not a pattern."),
        AfterValidator(validate_line),
    ]  # fmt: skip
    pod: Annotated[Word, Field(description="ROLE-INDEX; defaults to the rank-0 pod.")] | None = None
    run: Annotated[int, Field(ge=1, le=MAX_RUN, description="Defaults to the latest run.")] | None = None
    around: Annotated[
        int, Field(ge=0, le=MAX_CONTEXT_LINES, description="Lines of context before and after.")
    ] = 0
    ignore_case: Annotated[bool, Field(description="Ignore case for the letters A to Z.")] = False
    limit: Annotated[int, Field(ge=1, le=500, description="Maximum number of lines to return.")] = 50
    cursor: (
        Annotated[str, AfterValidator(_check_cursor), Field(description="`next` of the previous search.")]
        | None
    ) = None


class LogMatchResponse(ResponseModel):
    """Log line that matches the search. Long lines are truncated, and invalid bytes are replaced."""

    line: int = Field(description="Line number in the retained log, starting at 1.")
    offset: int = Field(description="Byte offset of the line.")
    text: str
    before: list[str]
    after: list[str]


class LogMatchesResponse(ResponseModel):
    """Page of log lines that match the search."""

    pod: str
    run: int
    matches: int = Field(description="Matching lines from the start of the search up to `searched_bytes`.")
    size: int = Field(description="Size of the log in bytes.")
    searched_bytes: int = Field(
        description="Byte offset at which the search ended. Very long logs are not searched to the end."
    )
    items: list[LogMatchResponse]
    next: str | None


class SearchLogs(ApiView):
    @operation("Search the log of a pod", query=LogSearchQuery, response=LogMatchesResponse)
    def get(self, request: Request, workload_id: UUID) -> Response:
        query = parse_query(request, LogSearchQuery)
        workload = selectors.find_workload(self.actor, workload_id)
        log = find_latest_log(self.actor, workload, name=query.pod, run=query.run)
        result = log_search.search_log(
            log.read_large_chunk, query.text, start=parse_cursor(query.cursor or ""), max_matches=query.limit,
            context_lines=query.around, ignore_case=query.ignore_case,
        )  # fmt: skip
        return Response(
            LogMatchesResponse.from_row(
                result,
                pod=log.name,
                run=log.pod.run,
                items=[_serialize_line(line) for line in result.lines],
                next=format_cursor(result.resume_at),
            )
        )


def parse_cursor(cursor: str) -> LinePosition:
    """Parse a cursor into a log position. An invalid cursor means the beginning of the log."""
    match = CURSOR.fullmatch(cursor)
    return LinePosition(int(match[1]), int(match[2])) if match else log_search.LOG_START


def format_cursor(place: LinePosition | None) -> str | None:
    return None if place is None else f"{place.offset}-{place.line}"


def _serialize_line(line: MatchingLine) -> LogMatchResponse:
    return LogMatchResponse(
        line=line.at.line,
        offset=line.at.offset,
        text=_decode_line(line.text),
        before=[_decode_line(context_line) for context_line in line.before],
        after=[_decode_line(context_line) for context_line in line.after],
    )


def _decode_line(line: bytes) -> str:
    return line.decode("utf-8", "replace").replace("\0", "\N{REPLACEMENT CHARACTER}")
