"""Here we give every request a name that its answer, its audit rows and its log lines share."""

import re
import uuid
from collections.abc import Awaitable, Callable
from typing import Any

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.http import HttpRequest, HttpResponseBase
from structlog.contextvars import bound_contextvars

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
        with bound_contextvars(request_id=request_id):
            response: HttpResponseBase = self.get_response(request)
        response.headers[HEADER] = request_id
        return response

    async def _later(self, request: HttpRequest, request_id: str) -> HttpResponseBase:
        with bound_contextvars(request_id=request_id):
            response: HttpResponseBase = await self.get_response(request)
        response.headers[HEADER] = request_id
        return response


def _given(request: HttpRequest) -> str:
    """The caller's own id, if it is harmless to repeat."""
    text = request.headers.get(HEADER, "")
    return text if ACCEPTED.fullmatch(text) else ""
