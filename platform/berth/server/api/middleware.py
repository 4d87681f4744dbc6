"""Give every request an id that its answer, audit rows and log lines share."""

import logging
import re
import time
import uuid
from collections.abc import Awaitable, Callable
from typing import Any

import structlog
from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.http import HttpRequest, HttpResponseBase
from structlog.contextvars import bound_contextvars

from berth.server.tracing.requests import answered, of_request, route_of

log = logging.getLogger("berth.requests")
HEADER = "X-Request-Id"
ACCEPTED = re.compile(r"[A-Za-z0-9._:-]{1,64}", re.ASCII)


class RequestIds:
    """Works in threads and in the event loop alike, so that it costs no hop between them."""

    sync_capable = True
    async_capable = True

    def __init__(self, get_response: Callable[[HttpRequest], Any]) -> None:
        self.get_response = get_response
        self.is_async = iscoroutinefunction(get_response)
        if self.is_async:
            markcoroutinefunction(self)

    def __call__(self, request: HttpRequest) -> HttpResponseBase | Awaitable[HttpResponseBase]:
        request_id = _given(request) or uuid.uuid4().hex
        request.request_id = request_id  # type: ignore[attr-defined]
        if self.is_async:
            return self._later(request, request_id)
        with bound_contextvars(request_id=request_id), of_request(request, request_id) as told:
            began = time.perf_counter()
            response: HttpResponseBase = self.get_response(request)
            answered(told, request, response)
            _written_down(request, response, began)
        response.headers[HEADER] = request_id
        return response

    async def _later(self, request: HttpRequest, request_id: str) -> HttpResponseBase:
        with bound_contextvars(request_id=request_id), of_request(request, request_id) as told:
            began = time.perf_counter()
            response: HttpResponseBase = await self.get_response(request)
            answered(told, request, response)
            _written_down(request, response, began)
        response.headers[HEADER] = request_id
        return response


def _written_down(request: HttpRequest, response: HttpResponseBase, began: float) -> None:
    """One line per request, where the operator wants that; by its route, as in traces."""
    if log.isEnabledFor(logging.INFO):
        structlog.get_logger(log.name).info(
            "request", method=request.method, route=route_of(request), status=response.status_code,
            ms=round((time.perf_counter() - began) * 1000, 1),
        )  # fmt: skip


def _given(request: HttpRequest) -> str:
    """The caller's own id, if it is harmless to repeat."""
    text = request.headers.get(HEADER, "")
    return text if ACCEPTED.fullmatch(text) else ""
