"""Stream one HTTP request to a pod, and its response to the browser."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any

import httpx

from projects.port_proxy.headers import Headers, find_header, response_headers_from_pod
from projects.port_proxy.streams import url_host
from projects.services.workloads.ports import PortAddress

Scope = Mapping[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[Mapping[str, Any]], Awaitable[None]]

BODILESS_STATUSES = (204, 304)
# Long polling may send no data for minutes. A browser that reads no data for a minute counts as disconnected.
TIMEOUTS = {"connect": 5.0, "read": 900.0, "write": 60.0, "pool": 5.0}


class NoResponse(Exception):
    """Raised if the pod sent no valid HTTP response."""


async def forward(
    transport: httpx.AsyncHTTPTransport, scope: Scope, receive: Receive, send: Send, *,
    address: PortAddress, headers: Headers, own_cookies: tuple[str, ...],
) -> None:  # fmt: skip
    """Forward a request until its response ends or the browser disconnects.

    Raises NoResponse if no response began.
    """
    body = _Body(receive)
    query = scope.get("query_string", b"")
    target = scope.get("raw_path") or scope["path"].encode()
    url = httpx.URL(f"http://{url_host(address)}").copy_with(
        raw_path=target + (b"?" + query if query else b"")
    )
    request = httpx.Request(
        scope["method"],
        url,
        headers=_adjust_framing(scope, headers),
        stream=body,
        extensions={"timeout": TIMEOUTS},
    )
    try:
        response = await transport.handle_async_request(request)
    except (httpx.TransportError, httpx.InvalidURL, ValueError) as error:
        raise NoResponse(type(error).__name__) from None
    try:
        if response.status_code < 200:
            raise NoResponse(f"status {response.status_code}")
        await _send_response(response, send, body, own_cookies)
    finally:
        await response.aclose()


class _Body(httpx.AsyncByteStream):
    """Request body, which also detects that the browser has disconnected."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._is_read = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while not self._is_read:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise httpx.ReadError("the browser disconnected")
            self._is_read = not message.get("more_body", False)
            if message.get("body"):
                yield message["body"]

    async def wait_disconnected(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass


async def _send_response(
    response: httpx.Response, send: Send, body: _Body, own_cookies: tuple[str, ...]
) -> None:
    headers = response_headers_from_pod(response.headers.raw, own_cookies=own_cookies)
    if response.status_code in BODILESS_STATUSES:
        headers = [(name, value) for name, value in headers if name != b"content-length"]
    await send({"type": "http.response.start", "status": response.status_code, "headers": headers})
    streaming = asyncio.ensure_future(_stream_response(response, send))
    disconnecting = asyncio.ensure_future(body.wait_disconnected())
    try:
        await asyncio.wait({streaming, disconnecting}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (streaming, disconnecting):
            task.cancel()
        with suppress(asyncio.CancelledError, httpx.TransportError, OSError):
            # The response must stay incomplete, so that the server closes the connection.
            await streaming
        with suppress(asyncio.CancelledError):
            await disconnecting


async def _stream_response(response: httpx.Response, send: Send) -> None:
    assert isinstance(response.stream, httpx.AsyncByteStream)
    async for part in response.stream:
        await send({"type": "http.response.body", "body": part, "more_body": True})
    await send({"type": "http.response.body", "body": b"", "more_body": False})


def _adjust_framing(scope: Scope, headers: Headers) -> Headers:
    """Return the headers, without Content-Length if the body is sent in chunks."""
    if not find_header(scope["headers"], b"transfer-encoding"):
        return headers
    rest = [(name, value) for name, value in headers if name != b"content-length"]
    return [*rest, (b"transfer-encoding", b"chunked")]
