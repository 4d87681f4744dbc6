"""Request IDs that link responses, audit rows and log lines."""

import logging
import re
import time
import uuid
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

import structlog
from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.http import HttpRequest, HttpResponseBase
from structlog.contextvars import bound_contextvars

from berth.server.tracing.requests import finish_request_span, route_pattern, start_request_span

log = logging.getLogger("berth.requests")
HEADER = "X-Request-Id"
ID_PATTERN = re.compile(r"[A-Za-z0-9._:-]{1,64}", re.ASCII)


class RequestIds:
    """Middleware that sets the request ID, under both WSGI and ASGI."""

    sync_capable = True
    async_capable = True

    def __init__(self, get_response: Callable[[HttpRequest], Any]) -> None:
        self.get_response = get_response
        self.is_async = iscoroutinefunction(get_response)
        if self.is_async:
            markcoroutinefunction(self)

    def __call__(self, request: HttpRequest) -> HttpResponseBase | Awaitable[HttpResponseBase]:
        request_id = _client_request_id(request) or uuid.uuid4().hex
        cast("Any", request).request_id = request_id
        if self.is_async:
            return self._call_async(request, request_id)
        with _request_context(request, request_id) as finish:
            return finish(self.get_response(request))

    async def _call_async(self, request: HttpRequest, request_id: str) -> HttpResponseBase:
        with _request_context(request, request_id) as finish:
            return finish(await self.get_response(request))


@contextmanager
def _request_context(
    request: HttpRequest, request_id: str
) -> Iterator[Callable[[HttpResponseBase], HttpResponseBase]]:
    """Bind the request ID to log lines and start a span.

    Call the yielded function with the response to end the span and add the request ID to the response.
    """
    with bound_contextvars(request_id=request_id), start_request_span(request, request_id) as span:
        started = time.perf_counter()

        def finish(response: HttpResponseBase) -> HttpResponseBase:
            finish_request_span(span, request, response)
            _log_request(request, response, started)
            response.headers[HEADER] = request_id
            return response

        yield finish


def _log_request(request: HttpRequest, response: HttpResponseBase, started: float) -> None:
    if log.isEnabledFor(logging.INFO):
        structlog.get_logger(log.name).info(
            "request", method=request.method, route=route_pattern(request), status=response.status_code,
            ms=round((time.perf_counter() - started) * 1000, 1),
        )  # fmt: skip


def _client_request_id(request: HttpRequest) -> str:
    """Return the ID that the client sent, or "" if it is missing or malformed."""
    text = request.headers.get(HEADER, "")
    return text if ID_PATTERN.fullmatch(text) else ""
