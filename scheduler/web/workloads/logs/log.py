"""Log panel of a workload: read, search and download."""

import re
import uuid
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any

from asgiref.sync import sync_to_async
from django.core.handlers.asgi import ASGIRequest
from django.http import Http404, HttpResponse, JsonResponse, StreamingHttpResponse
from django.shortcuts import render
from django.utils.http import content_disposition_header
from django.views.decorators.http import require_GET

from berth.core.errors import NotFound
from berth.server.web.pages import Request, signed_in
from projects import selectors
from projects.models import Pod
from projects.selectors import find_workload
from scheduler.api.logs.pod_log import MAX_CHUNK_BYTES, PodLog, find_pod_log
from scheduler.api.logs.search import format_cursor, parse_cursor
from scheduler.api.logs.timestamps import line_times, times_at
from scheduler.reports.log_errors import search_errors
from scheduler.reports.log_search import MAX_TEXT_LENGTH, LinePosition, LogMatches, MatchingLine, search_log
from scheduler.reports.log_text import render_as_terminal_line
from scheduler.web.workloads.details import PodPlacement, pod_placements
from scheduler.web.workloads.failure import first_failed_pod
from scheduler.web.workloads.logs.all_pods_search import MAX_PODS, search_all_pods
from scheduler.web.workloads.logs.search_progress import parse_progress

TEXT = "text/plain; charset=utf-8"
MAX_BYTES, MAX_LINES = 256 * 1024, 2000
MAX_TIMED_BYTES = 8 * 1024 * 1024  # maximum bytes of a request for line times; a page shows fewer
MAX_HITS = 30
MAX_LEADING_TEXT = 60  # maximum number of characters shown before the first match in a line


@dataclass(frozen=True, slots=True)
class SearchHit:
    """Line with a match, split into pieces.

    Each piece has a flag that is True for a match. The time is a Unix time in milliseconds, or 0 if unknown.
    """

    pod: Pod
    line: MatchingLine
    time: int
    pieces: tuple[tuple[str, bool], ...]


@signed_in
@require_GET
def read(request: Request, workload_id: uuid.UUID) -> HttpResponse:
    """Return at most `limit` bytes from `offset`, or the last `tail` lines."""
    log = _find_log(request, workload_id)
    offset, limit = _int_parameter(request, "offset", -1), _int_parameter(request, "limit", MAX_BYTES)
    if offset >= 0:
        chunk = log.read_chunk(offset, min(limit, MAX_BYTES))
    else:
        chunk = log.tail(min(_int_parameter(request, "tail", MAX_LINES), MAX_LINES))
    response = HttpResponse(chunk.data, content_type=TEXT)
    response.headers["X-Offset"] = str(chunk.offset)
    if chunk.data and (line := line_number(log, chunk.offset)):
        response.headers["X-Line"] = str(line)
    response.headers["X-Next-Offset"] = str(chunk.next_offset)
    response.headers["X-Size"] = str(chunk.size)
    response.headers["X-Complete"] = "true" if chunk.complete else "false"
    return response


@signed_in
@require_GET
def times(request: Request, workload_id: uuid.UUID) -> JsonResponse:
    """Return the times of the lines from `offset` to `end`. See `line_times`."""
    log = _find_log(request, workload_id)
    offset, end = _int_parameter(request, "offset", 0), _int_parameter(request, "end", 0)
    end = min(end, offset + MAX_TIMED_BYTES)
    chunks = []
    while offset < end:
        chunk = log.read_large_chunk(offset, end - offset)
        if not chunk.data:
            break
        chunks.append(chunk)
        offset = chunk.next_offset
    return JsonResponse({"times": line_times(log, *chunks)})


@signed_in
@require_GET
def pods(request: Request, workload_id: uuid.UUID) -> HttpResponse:
    workload = find_workload(request.actor, workload_id)
    now, earlier = pod_placements(request.actor, workload)
    context = {
        "workload": workload,
        "log_runs": pods_by_run([*now, *earlier]),
        "failed_pod": first_failed_pod(workload, now),
    }
    return render(request, "scheduler/workloads/log_pods.html", context)


@signed_in
@require_GET
def find_in_log(request: Request, workload_id: uuid.UUID) -> HttpResponse:
    """Return the first lines after `cursor` that contain the text.

    With `errors`, return the first lines that report an error instead. The page appends the lines to earlier
    matches, and passes `none_yet` if there are none.
    """
    text = request.GET.get("text", "").replace("\x00", "").strip("\r\n")[:MAX_TEXT_LENGTH]
    fold = request.GET.get("ignore_case") == "on"
    workload = find_workload(request.actor, workload_id)
    finds_errors = request.GET.get("errors") == "on"
    context: dict[str, Any] = {
        "text": text, "ignore_case": fold, "workload": workload, "finds_errors": finds_errors,
    }  # fmt: skip
    if text and request.GET.get("all_pods") == "on":
        context |= _search_all_pods(request, workload_id, text, ignore_case=fold)
    elif text or finds_errors:
        log = _find_log(request, workload_id)
        start = parse_cursor(request.GET.get("cursor", ""))
        if finds_errors:
            matches = search_errors(log.read_large_chunk, start=start, max_matches=MAX_HITS, context_lines=0)
        else:
            matches = search_log(
                log.read_large_chunk, text, start=start, max_matches=MAX_HITS,
                context_lines=0, ignore_case=fold,
            )  # fmt: skip
        context |= {
            "log": log,
            "pod_count": workload.pods.filter(run=log.pod.run).count(),
            "result": matches,
            "progress": parse_progress(request.GET).add_log(matches),
            "hits": build_hits(log, matches, "" if finds_errors else text, fold),
            "more": start.offset > 0 and not request.GET.get("none_yet"),
            "next": format_cursor(matches.resume_at),
        }
    return render(request, "scheduler/workloads/log_matches.html", context)


def _search_all_pods(
    request: Request, workload_id: uuid.UUID, text: str, *, ignore_case: bool
) -> dict[str, Any]:
    """Search the logs of all pods of the selected pod's run."""
    log = _find_log(request, workload_id)
    rows = selectors.pods(request.actor).filter(workload=workload_id, run=log.pod.run)
    logs = [PodLog(pod, log.runtime) for pod in rows.order_by("rank", "role", "index")[:MAX_PODS]]
    pod_count = rows.count() if len(logs) == MAX_PODS else len(logs)
    starts = _parse_pod_cursors(request.GET.get("cursor", ""))
    matches = search_all_pods(
        logs, text, starts=starts, pod_count=pod_count, max_matches=MAX_HITS, context_lines=0,
        ignore_case=ignore_case,
    )  # fmt: skip
    left_out = max(0, len(logs) - len(starts)) if starts else 0
    return {
        "log": log,
        "result": matches,
        "progress": parse_progress(request.GET).add_pods(matches, left_out=left_out),
        "hits": [hit for each in matches.by_pod for hit in build_hits(*each, text, ignore_case)],
        "all_pods": True,
        "pod_count": pod_count,
        "more": bool(starts) and not request.GET.get("none_yet"),
        "next": ",".join(f"{pod.pk}.{format_cursor(place)}" for pod, place in matches.resume_at),
    }


def _parse_pod_cursors(text: str) -> dict[str, LinePosition]:
    return {
        pod: parse_cursor(cursor)
        for pod, _, cursor in (part.partition(".") for part in text.split(",")[:MAX_PODS])
        if cursor
    }


@signed_in
@require_GET
def count_errors(request: Request, workload_id: uuid.UUID) -> JsonResponse:
    """Return the number of lines that name an error, and whether the entire log was searched."""
    log = _find_log(request, workload_id)
    matches = search_errors(log.read_large_chunk, max_matches=0, context_lines=0)
    return JsonResponse({"count": matches.matches, "is_complete": matches.is_complete})


@signed_in
@require_GET
def download(request: Request, workload_id: uuid.UUID) -> StreamingHttpResponse:
    """Stream the entire stored log as raw bytes."""
    log = _find_log(request, workload_id)
    size = log.read_chunk(0, 0).size
    pieces = _aiter_pieces(log, size) if isinstance(request, ASGIRequest) else _log_chunks(log, size)
    name = f"{log.pod.workload.name}-{log.name}-run{log.pod.run}.log"
    headers = {"Content-Disposition": str(content_disposition_header(True, name))}
    return StreamingHttpResponse(pieces, content_type=TEXT, headers=headers)


def pods_by_run(pods: list[PodPlacement]) -> list[tuple[int, list[PodPlacement]]]:
    """Group pods by run, latest run first."""
    runs: dict[int, list[PodPlacement]] = {}
    for pod in pods:
        runs.setdefault(pod.pod.run, []).append(pod)
    return sorted(runs.items(), reverse=True)


def build_hits(log: PodLog, matches: LogMatches, text: str, ignore_case: bool) -> list[SearchHit]:
    """Return the matching lines, with each occurrence of `text` highlighted.

    If `text` is empty, nothing is highlighted.
    """
    pattern = re.compile(f"({re.escape(text)})" if text else "($^)", re.IGNORECASE if ignore_case else 0)
    return [_build_hit(log, line, pattern, is_marked=bool(text)) for line in matches.lines]


def _build_hit(log: PodLog, line: MatchingLine, pattern: re.Pattern[str], *, is_marked: bool) -> SearchHit:
    shown = render_as_terminal_line(line.text, pattern if is_marked else None)
    pieces = [(piece, place % 2 == 1) for place, piece in enumerate(pattern.split(shown))]
    leading, _ = pieces[0]
    if is_marked and len(leading) > MAX_LEADING_TEXT:
        pieces[0] = f"…{leading[-MAX_LEADING_TEXT:]}", False
    return SearchHit(
        log.pod, line, times_at(log, line.offsets)[0], tuple(piece for piece in pieces if piece[0])
    )


def line_number(log: PodLog, offset: int) -> int | None:
    """Return the line number at an offset, or None if too many lines would have to be counted."""
    if offset > MAX_CHUNK_BYTES:
        return None
    return 1 + (log.read_large_chunk(0, offset).data.count(b"\n") if offset else 0)


def _find_log(request: Request, workload_id: uuid.UUID) -> PodLog:
    try:
        return find_pod_log(request.actor, workload_id, request.GET.get("pod", ""))
    except NotFound:
        raise Http404 from None


def _int_parameter(request: Request, name: str, default: int) -> int:
    text_ = request.GET.get(name, "")
    return int(text_) if text_.isascii() and text_.isdigit() and len(text_) < 17 else default


def _log_chunks(log: PodLog, size: int) -> Iterator[bytes]:
    offset = 0
    while offset < size:
        chunk = log.read_large_chunk(offset, min(MAX_CHUNK_BYTES, size - offset))
        if not chunk.data:
            return
        yield chunk.data
        offset = chunk.next_offset


async def _aiter_pieces(log: PodLog, size: int) -> AsyncIterator[bytes]:
    pieces = _log_chunks(log, size)
    while piece := await sync_to_async(_next_piece)(pieces):
        yield piece


def _next_piece(pieces: Iterator[bytes]) -> bytes:
    return next(pieces, b"")
