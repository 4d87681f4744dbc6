"""ASGI handler for REST requests: one switch to a thread per request."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from asgiref.sync import sync_to_async
from django.core.handlers.asgi import ASGIHandler
from django.http import HttpRequest, HttpResponseBase

Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[Mapping[str, Any]], Awaitable[None]]
PATHS = ("/api/", "/healthz", "/readyz", "/metrics")


class SingleThreadHandler(ASGIHandler):
    """Django's handler with synchronous middleware.

    One switch between event loop and thread per request replaces two per middleware and three per view.
    Streaming responses still run in the event loop.
    """

    def __init__(self) -> None:
        self.load_middleware(is_async=False)

    async def get_response_async(self, request: HttpRequest) -> HttpResponseBase:
        return await sync_to_async(self.get_response)(request)


class RestRouter:
    """Router that sends REST paths to their own handler and other paths to the page handler."""

    def __init__(self, pages: Any) -> None:
        self.pages = pages
        self.rest = SingleThreadHandler()

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        handler = self.rest if scope["path"].startswith(PATHS) else self.pages
        await handler(scope, receive, send)
