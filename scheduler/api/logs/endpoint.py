"""REST endpoint for pod logs: a chunk, the last lines, or a continuous stream."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
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
from scheduler.api.logs.pod_log import MAX_CHUNK_BYTES, PodLog, find_latest_log
from scheduler.api.logs.timestamps import LineTimestamper

TEXT = "text/plain; charset=utf-8"
POLL_SECONDS = 0.2  # seconds between reads while the log has no new data
MAX_RUN = 2**31 - 1


class LogsQuery(Query):
    pod: Annotated[Word, Field(description="ROLE-INDEX; defaults to the rank-0 pod.")] | None = None
    run: Annotated[int, Field(ge=1, le=MAX_RUN, description="Defaults to the latest run.")] | None = None
    tail: (
        Annotated[int, Field(ge=0, le=100_000, description="Number of lines to return from the end.")] | None
    ) = None
    offset: Annotated[int, Field(ge=0, le=2**53, description="Byte offset to start from.")] = 0
    limit: Annotated[int, Field(ge=1, le=MAX_CHUNK_BYTES, description="Maximum number of bytes.")] = (
        MAX_CHUNK_BYTES
    )
    follow: Annotated[bool, Field(description="Stream until the pod has ended.")] = False
    timestamps: Annotated[
        bool,
        Field(
            description="Prefix each line with the UTC time of its output, accurate to 2 s, or with `-` "
            "if the time is unknown. The prefix has 21 characters, which `limit` and offsets do not count."
        ),
    ] = False


class Logs(ApiView):
    @operation("Get the log of a pod", query=LogsQuery, media_type="text/plain")
    def get(self, request: Request, workload_id: UUID) -> HttpResponse | StreamingHttpResponse:
        query = parse_query(request, LogsQuery)
        if query.tail is not None and "offset" in query.model_fields_set:
            raise Invalid(
                [Problem("offset", "cannot be combined with `tail`", f"{query.offset}", "`offset` or `tail`")]
            )
        workload = selectors.find_workload(self.actor, workload_id)
        log = find_latest_log(self.actor, workload, name=query.pod, run=query.run)
        chunk = log.read_chunk(query.offset, query.limit) if query.tail is None else log.tail(query.tail)
        stamp = LineTimestamper(log) if query.timestamps else _chunk_data
        text = stamp(chunk)
        if not query.follow:
            return HttpResponse(text, TEXT, headers=_response_headers(log, chunk))
        follow = _follow if isinstance(request._request, ASGIRequest) else _follow_in_thread
        headers = {**_response_headers(log, chunk), "X-Accel-Buffering": "no"}
        for name in ("X-Next-Offset", "X-Complete"):  # both values are unknown until the stream ends
            del headers[name]
        return StreamingHttpResponse(follow(log, chunk, text, stamp), content_type=TEXT, headers=headers)


Stamp = Callable[[LogChunk], bytes]  # function that returns the text of a chunk, with or without timestamps


def _chunk_data(chunk: LogChunk) -> bytes:
    return chunk.data


async def _follow(log: PodLog, chunk: LogChunk, text: bytes, stamp: Stamp) -> AsyncIterator[bytes]:
    """Stream the log from the event loop, and stop when the client disconnects."""
    while True:
        if text:
            yield text
        if chunk.complete:
            return
        if not chunk.data:
            await asyncio.sleep(POLL_SECONDS)
        try:
            chunk, text = await sync_to_async(_read_next)(log, chunk, stamp)
        except BerthError:
            return  # the headers are already sent, so the error can only end the stream


def _follow_in_thread(log: PodLog, chunk: LogChunk, text: bytes, stamp: Stamp) -> Iterator[bytes]:
    """Stream the log on servers that use one thread per request."""
    while True:
        if text:
            yield text
        if chunk.complete:
            return
        if not chunk.data:
            time.sleep(POLL_SECONDS)
        chunk = log.read_chunk(chunk.next_offset)
        text = stamp(chunk)


def _read_next(log: PodLog, chunk: LogChunk, stamp: Stamp) -> tuple[LogChunk, bytes]:
    try:
        chunk = log.read_chunk(chunk.next_offset)
        return chunk, stamp(chunk)
    finally:
        connection.close()


def _response_headers(log: PodLog, chunk: LogChunk) -> dict[str, str]:
    return {
        "X-Next-Offset": str(chunk.next_offset),
        "X-Complete": "true" if chunk.complete else "false",
        "X-Pod": log.name,
        "X-Run": str(log.pod.run),
        "X-Content-Type-Options": "nosniff",
    }
