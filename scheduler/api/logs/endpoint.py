"""REST endpoint of pod logs: a piece, the last lines, or a stream."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from typing import Annotated
from uuid import UUID

from asgiref.sync import sync_to_async
from django.core.handlers.asgi import ASGIRequest
from django.db import connection
from django.http import HttpResponse, StreamingHttpResponse
from pydantic import Field
from rest_framework.request import Request

from berth.core.errors import BerthError, Invalid
from berth.core.problems import Problem
from berth.server.api.requests import Query, Word, parse_query
from berth.server.api.schema import operation
from berth.server.api.views import ApiView
from pools.runtimes.base import LogChunk
from projects import selectors
from scheduler.api.logs.pod_log import PIECE_MAX, PodLog, log_of

TEXT = "text/plain; charset=utf-8"
POLL = 0.2  # seconds between two reads of a log without new data
PODS_MAX = 2**31 - 1


class LogsQuery(Query):
    pod: Annotated[Word, Field(description="ROLE-INDEX; without it the pod of rank 0.")] | None = None
    run: Annotated[int, Field(ge=1, le=PODS_MAX, description="Without it the latest.")] | None = None
    tail: Annotated[int, Field(ge=0, le=100_000, description="So many last lines.")] | None = None
    offset: Annotated[int, Field(ge=0, le=2**53, description="From this byte on.")] = 0
    limit: Annotated[int, Field(ge=1, le=PIECE_MAX, description="So many bytes at most.")] = PIECE_MAX
    follow: Annotated[bool, Field(description="Go on until the pod has ended.")] = False


class Logs(ApiView):
    @operation("Log of a pod", query=LogsQuery, media_type="text/plain")
    def get(self, request: Request, workload_id: UUID) -> HttpResponse | StreamingHttpResponse:
        query = parse_query(request, LogsQuery)
        if query.tail is not None and "offset" in query.model_fields_set:
            raise Invalid(
                [Problem("offset", "given together with tail", f"{query.offset}", "one of the two")]
            )
        workload = selectors.find_workload(self.acting, workload_id)
        log = log_of(self.acting, workload, name=query.pod, run=query.run)
        chunk = log.piece(query.offset, query.limit) if query.tail is None else log.tail(query.tail)
        if not query.follow:
            return HttpResponse(chunk.data, TEXT, headers=_headers(log, chunk))
        followed = _followed if isinstance(request._request, ASGIRequest) else _followed_in_a_thread
        headers = {**_headers(log, chunk), "X-Accel-Buffering": "no"}
        for name in ("X-Next-Offset", "X-Complete"):  # not known before the end
            del headers[name]
        return StreamingHttpResponse(followed(log, chunk), content_type=TEXT, headers=headers)


async def _followed(log: PodLog, chunk: LogChunk) -> AsyncIterator[bytes]:
    """Stream the log without a thread while it is idle; cancelled when the client disconnects."""
    while True:
        if chunk.data:
            yield chunk.data
        if chunk.complete:
            return
        if not chunk.data:
            await asyncio.sleep(POLL)
        try:
            chunk = await sync_to_async(_next)(log, chunk)
        except BerthError:
            return  # the headers are sent: ending the stream early is the only way to report it


def _followed_in_a_thread(log: PodLog, chunk: LogChunk) -> Iterator[bytes]:
    """Stream the log on servers with one thread per request."""
    while True:
        if chunk.data:
            yield chunk.data
        if chunk.complete:
            return
        if not chunk.data:
            time.sleep(POLL)
        chunk = log.piece(chunk.next_offset)


def _next(log: PodLog, chunk: LogChunk) -> LogChunk:
    try:
        return log.piece(chunk.next_offset)
    finally:
        connection.close()


def _headers(log: PodLog, chunk: LogChunk) -> dict[str, str]:
    return {
        "X-Next-Offset": str(chunk.next_offset),
        "X-Complete": "true" if chunk.complete else "false",
        "X-Pod": log.name,
        "X-Run": str(log.pod.run),
        "X-Content-Type-Options": "nosniff",
    }
