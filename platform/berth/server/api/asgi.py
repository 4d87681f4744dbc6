"""Serve REST beside live updates: one hop into a thread per request."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from asgiref.sync import sync_to_async
from django.core.handlers.asgi import ASGIHandler
from django.http import HttpRequest, HttpResponseBase

Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[Mapping[str, Any]], Awaitable[None]]
PATHS = ("/api/", "/healthz", "/readyz", "/metrics")


class OneHop(ASGIHandler):
    """Django's handler with its middleware as for threads: the hops between loop and thread, two for each
    middleware and three for a view, become one. Answers that stream still do so in the loop."""

    def __init__(self) -> None:
        self.load_middleware(is_async=False)

    async def get_response_async(self, request: HttpRequest) -> HttpResponseBase:
        return await sync_to_async(self.get_response)(request)


class Rest:
    """Routes the addresses of REST to their own handler and all others to the handler of pages."""

    def __init__(self, pages: Any) -> None:
        self.pages = pages
        self.rest = OneHop()

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        handler = self.rest if scope["path"].startswith(PATHS) else self.pages
        await handler(scope, receive, send)
