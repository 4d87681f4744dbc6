"""Log panel of a workload: read, search and download."""

import re
import uuid
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any

from asgiref.sync import sync_to_async
from django.core.handlers.asgi import ASGIRequest
from django.http import Http404, HttpResponse, StreamingHttpResponse
from django.shortcuts import render
from django.utils.http import content_disposition_header
from django.views.decorators.http import require_GET

from berth.core.errors import NotFound
from berth.server.web.pages import Request, signed_in
from berth.server.web.plain_text import plain_text
from projects.selectors import find_workload
from scheduler.api.logs.pod_log import PIECE_MAX, PodLog, log_of_pod
from scheduler.api.logs.search import cursor_of, place_of
from scheduler.reports.log_search import TEXT_MAX, Line, LogMatches, search
from scheduler.web.workloads.details import Placed, placed

TEXT = "text/plain; charset=utf-8"
MOST_BYTES, MOST_LINES = 256 * 1024, 2000
SHOWN, AROUND = 30, 2


@dataclass(frozen=True, slots=True)
class Hit:
    """A matching line, split into pieces. Each piece has a flag that is True for a match."""

    line: Line
    before: tuple[str, ...]
    pieces: tuple[tuple[str, bool], ...]
    after: tuple[str, ...]


@signed_in
@require_GET
def read(request: Request, workload_id: uuid.UUID) -> HttpResponse:
    """Return at most `limit` bytes from `offset`, or the last `tail` lines."""
    log = _find_log(request, workload_id)
    offset, limit = _int_parameter(request, "offset", -1), _int_parameter(request, "limit", MOST_BYTES)
    if offset >= 0:
        chunk = log.piece(offset, min(limit, MOST_BYTES))
    else:
        chunk = log.tail(min(_int_parameter(request, "tail", MOST_LINES), MOST_LINES))
    response = HttpResponse(chunk.data, content_type=TEXT)
    response.headers["X-Offset"] = str(chunk.offset)
    response.headers["X-Next-Offset"] = str(chunk.next_offset)
    response.headers["X-Complete"] = "true" if chunk.complete else "false"
    return response


@signed_in
@require_GET
def pods(request: Request, workload_id: uuid.UUID) -> HttpResponse:
    workload = find_workload(request.acting, workload_id)
    now, earlier = placed(request.acting, workload)
    context = {"workload": workload, "log_runs": runs_of([*now, *earlier])}
    return render(request, "scheduler/workloads/log_pods.html", context)


@signed_in
@require_GET
def find(request: Request, workload_id: uuid.UUID) -> HttpResponse:
    """Return the first lines after `cursor` that contain the text."""
    text = request.GET.get("text", "").replace("\x00", "").strip("\r\n")[:TEXT_MAX]
    fold = request.GET.get("ignore_case") == "on"
    workload = find_workload(request.acting, workload_id)
    context: dict[str, Any] = {"text": text, "ignore_case": fold, "workload": workload}
    if text:
        log = _find_log(request, workload_id)
        start = place_of(request.GET.get("cursor", ""))
        matches = search(log.long_piece, text, start=start, most=SHOWN, around=AROUND, ignore_case=fold)
        context |= {
            "log": log,
            "result": matches,
            "hits": hits_of(matches, text, fold),
            "more": start.offset > 0,
            "next": cursor_of(matches.following),
        }
    return render(request, "scheduler/workloads/log_matches.html", context)


@signed_in
@require_GET
def download(request: Request, workload_id: uuid.UUID) -> StreamingHttpResponse:
    """Return the whole stored log as a stream of unchanged bytes."""
    log = _find_log(request, workload_id)
    size = log.piece(0, 0).size
    pieces = _async_pieces(log, size) if isinstance(request, ASGIRequest) else _pieces(log, size)
    name = f"{log.pod.workload.name}-{log.name}-run{log.pod.run}.log"
    headers = {"Content-Disposition": str(content_disposition_header(True, name))}
    return StreamingHttpResponse(pieces, content_type=TEXT, headers=headers)


def runs_of(pods: list[Placed]) -> list[tuple[int, list[Placed]]]:
    """Group pods by run, the latest run first."""
    runs: dict[int, list[Placed]] = {}
    for each in pods:
        runs.setdefault(each.pod.run, []).append(each)
    return sorted(runs.items(), reverse=True)


def hits_of(matches: LogMatches, text: str, ignore_case: bool) -> list[Hit]:
    wanted = re.compile(f"({re.escape(text)})", re.IGNORECASE if ignore_case else 0)
    return [
        Hit(
            line,
            tuple(plain_text(each) for each in line.before),
            tuple(
                (piece, place % 2 == 1)
                for place, piece in enumerate(wanted.split(plain_text(line.text)))
                if piece
            ),
            tuple(plain_text(each) for each in line.after),
        )
        for line in matches.lines
    ]


def _find_log(request: Request, workload_id: uuid.UUID) -> PodLog:
    try:
        return log_of_pod(request.acting, workload_id, request.GET.get("pod", ""))
    except NotFound:
        raise Http404 from None


def _int_parameter(request: Request, name: str, otherwise: int) -> int:
    text_ = request.GET.get(name, "")
    return int(text_) if text_.isascii() and text_.isdigit() and len(text_) < 17 else otherwise


def _pieces(log: PodLog, size: int) -> Iterator[bytes]:
    offset = 0
    while offset < size:
        chunk = log.long_piece(offset, min(PIECE_MAX, size - offset))
        if not chunk.data:
            return
        yield chunk.data
        offset = chunk.next_offset


async def _async_pieces(log: PodLog, size: int) -> AsyncIterator[bytes]:
    pieces = _pieces(log, size)
    while piece := await sync_to_async(_next_piece)(pieces):
        yield piece


def _next_piece(pieces: Iterator[bytes]) -> bytes:
    return next(pieces, b"")
