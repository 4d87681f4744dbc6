"""REST endpoint that searches the log of a pod."""

import re
from typing import Annotated
from uuid import UUID

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError
from rest_framework.request import Request
from rest_framework.response import Response

from berth.core.spec.texts import plain
from berth.server.api.requests import Query, Word, parse_query
from berth.server.api.responses import Answer
from berth.server.api.schema import operation
from berth.server.api.views import ApiView
from projects import selectors
from scheduler.api.logs.endpoint import PODS_MAX
from scheduler.api.logs.pod_log import log_of
from scheduler.reports import log_search
from scheduler.reports.log_search import AROUND_MAX, TEXT_MAX, Line, Place

CURSOR = re.compile(r"(\d{1,16})-(\d{1,16})")


def _place(text: str) -> str:
    if CURSOR.fullmatch(text) is None:
        raise PydanticCustomError(
            "cursor", "is not a cursor of this search", {"allowed": "`next` of the search before"}
        )
    return text


class SearchQuery(Query):
    text: Annotated[
        str, Field(min_length=1, max_length=TEXT_MAX, description="Literal text, not a pattern."),
        AfterValidator(plain),
    ]  # fmt: skip
    pod: Annotated[Word, Field(description="ROLE-INDEX; without it the pod of rank 0.")] | None = None
    run: Annotated[int, Field(ge=1, le=PODS_MAX, description="Without it the latest.")] | None = None
    around: Annotated[int, Field(ge=0, le=AROUND_MAX, description="So many lines before and after.")] = 0
    ignore_case: Annotated[bool, Field(description="Of the letters A to Z.")] = False
    limit: Annotated[int, Field(ge=1, le=500, description="So many lines at most; all are counted.")] = 50
    cursor: (
        Annotated[str, AfterValidator(_place), Field(description="`next` of the search before.")] | None
    ) = None


class LogLineAnswer(Answer):
    """A line of a log. Long lines are cut, invalid bytes replaced."""

    line: int = Field(description="Its number among the lines that are kept, from 1.")
    offset: int = Field(description="Its first byte.")
    text: str
    before: list[str]
    after: list[str]


class LogSearchAnswer(Answer):
    pod: str
    run: int
    matches: int = Field(description="Lines from where the search began to `searched_bytes`.")
    size: int = Field(description="Bytes that the log has.")
    searched_bytes: int = Field(description="Up to this byte: a search of a very long log ends early.")
    items: list[LogLineAnswer]
    next: str | None


class SearchLogs(ApiView):
    @operation("Lines of a pod's log that contain a text", query=SearchQuery, answer=LogSearchAnswer)
    def get(self, request: Request, workload_id: UUID) -> Response:
        query = parse_query(request, SearchQuery)
        workload = selectors.find_workload(self.acting, workload_id)
        log = log_of(self.acting, workload, name=query.pod, run=query.run)
        result = log_search.search(
            log.long_piece, query.text, start=place_of(query.cursor or ""), most=query.limit,
            around=query.around, ignore_case=query.ignore_case,
        )  # fmt: skip
        return Response(
            LogSearchAnswer(
                pod=log.name, run=log.pod.run, matches=result.matches, size=result.size,
                searched_bytes=result.searched_bytes, items=[_line(line) for line in result.lines],
                next=cursor_of(result.following),
            )
        )  # fmt: skip


def place_of(cursor: str) -> Place:
    """Return the position of a cursor, or the beginning if the cursor is invalid."""
    match = CURSOR.fullmatch(cursor)
    return Place(int(match[1]), int(match[2])) if match else log_search.BEGIN


def cursor_of(place: Place | None) -> str | None:
    return None if place is None else f"{place.offset}-{place.line}"


def _line(line: Line) -> LogLineAnswer:
    return LogLineAnswer(
        line=line.at.line, offset=line.at.offset, text=_text(line.text),
        before=[_text(each) for each in line.before], after=[_text(each) for each in line.after],
    )  # fmt: skip


def _text(line: bytes) -> str:
    return line.decode("utf-8", "replace").replace("\0", "\N{REPLACEMENT CHARACTER}")
