"""ASGI handler for REST requests that switches to a thread only once per request."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import IO, Any, cast

from asgiref.sync import sync_to_async
from django.core import signals
from django.core.exceptions import RequestAborted
from django.core.handlers.asgi import ASGIHandler, get_script_prefix
from django.http import HttpResponseBase
from django.urls import set_script_prefix

Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[Mapping[str, Any]], Awaitable[None]]
PATHS = ("/api/", "/healthz", "/readyz", "/metrics")


class SingleThreadHandler(ASGIHandler):
    """Variant of Django's handler that runs middleware and views in one thread.

    Django would switch threads several times per middleware, view and signal. Streaming responses still run
    in the event loop.
    """

    def __init__(self) -> None:
        self.load_middleware(is_async=False)

    async def handle(self, scope: dict[str, Any], receive: Any, send: Send) -> None:
        try:
            body = await self.read_body(receive)
        except RequestAborted:
            return
        with body:
            response = await sync_to_async(self.respond)(scope, body)
            if response.streaming:
                await self.stream(response, receive, send)
            else:
                await self.send_response(response, send)

    def respond(self, scope: dict[str, Any], body: IO[bytes]) -> HttpResponseBase:
        """Return the response.

        Resources such as the database connection are released first, unless the response is a stream.
        """
        set_script_prefix(get_script_prefix(scope))
        signals.request_started.send(sender=self.__class__, scope=scope)
        request, error_response = self.create_request(scope, body)
        response = cast("HttpResponseBase", error_response) if request is None else self.get_response(request)
        cast("Any", response)._handler_class = self.__class__  # the sender of the `request_finished` signal
        if not response.streaming:
            response.close()
        return response

    async def stream(self, response: HttpResponseBase, receive: Receive, send: Send) -> None:
        """Send a streaming response until it ends or the client disconnects."""
        sending = asyncio.ensure_future(self.send_response(response, send))
        disconnect = asyncio.ensure_future(receive())
        try:
            await asyncio.wait({sending, disconnect}, return_when=asyncio.FIRST_COMPLETED)
            if sending.done():
                sending.result()
        finally:
            for task in (sending, disconnect):
                task.cancel()
            await asyncio.wait({sending, disconnect})
            await sync_to_async(response.close)()


class RestRouter:
    """Router that sends REST paths to their own handler and all other paths to the page handler."""

    def __init__(self, pages: Any) -> None:
        self.pages = pages
        self.rest = SingleThreadHandler()

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        handler = self.rest if scope["path"].startswith(PATHS) else self.pages
        await handler(scope, receive, send)
