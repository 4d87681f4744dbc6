"""Proxy one HTTP request to a pod, streaming both ways."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any

import httpx

from projects.services.workloads.ports import Place
from projects.visits.headers import Headers, first_of, from_pod

Scope = Mapping[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[Mapping[str, Any]], Awaitable[None]]

WITHOUT_BODY = (204, 304)
# Pages that wait for news may be silent for long; whoever reads no answer for a minute has left.
TIMES = {"connect": 5.0, "read": 900.0, "write": 60.0, "pool": 5.0}


class Silent(Exception):
    """The pod did not answer as a web server does."""


def pool() -> httpx.AsyncHTTPTransport:
    """Connections to pods. No cookies, redirects or proxies of its own: those are a client's, not ours."""
    return httpx.AsyncHTTPTransport(
        limits=httpx.Limits(max_connections=1024, max_keepalive_connections=64, keepalive_expiry=5.0),
        trust_env=False,
    )


async def hand_on(
    transport: httpx.AsyncHTTPTransport, scope: Scope, receive: Receive, send: Send, *,
    place: Place, headers: Headers, own_cookies: tuple[str, ...],
) -> None:  # fmt: skip
    """Returns when the answer is through, or the visitor has gone. Raises Silent before an answer began."""
    body = _Body(receive)
    query = scope.get("query_string", b"")
    target = scope.get("raw_path") or scope["path"].encode()
    url = httpx.URL(f"http://{place.netloc}").copy_with(raw_path=target + (b"?" + query if query else b""))
    request = httpx.Request(
        scope["method"], url, headers=_framed(scope, headers), stream=body, extensions={"timeout": TIMES}
    )
    try:
        answer = await transport.handle_async_request(request)
    except (httpx.TransportError, httpx.InvalidURL, ValueError) as error:
        raise Silent(type(error).__name__) from None
    try:
        if answer.status_code < 200:
            raise Silent(f"status {answer.status_code}")
        await _answer(answer, send, body, own_cookies)
    finally:
        await answer.aclose()


class _Body(httpx.AsyncByteStream):
    """What the visitor sends; afterwards, that the visitor has gone."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._is_read = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while not self._is_read:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise httpx.ReadError("the visitor has gone")
            self._is_read = not message.get("more_body", False)
            if message.get("body"):
                yield message["body"]

    async def gone(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass


async def _answer(answer: httpx.Response, send: Send, body: _Body, own_cookies: tuple[str, ...]) -> None:
    headers = from_pod(answer.headers.raw, own_cookies=own_cookies)
    if answer.status_code in WITHOUT_BODY:
        headers = [(name, value) for name, value in headers if name != b"content-length"]
    await send({"type": "http.response.start", "status": answer.status_code, "headers": headers})
    streaming = asyncio.ensure_future(_stream(answer, send))
    leaving = asyncio.ensure_future(body.gone())
    try:
        await asyncio.wait({streaming, leaving}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (streaming, leaving):
            task.cancel()
        with suppress(asyncio.CancelledError, httpx.TransportError, OSError):
            await streaming  # an answer that broke off is not ended: the server cuts the connection
        with suppress(asyncio.CancelledError):
            await leaving


async def _stream(answer: httpx.Response, send: Send) -> None:
    assert isinstance(answer.stream, httpx.AsyncByteStream)
    async for part in answer.stream:
        await send({"type": "http.response.body", "body": part, "more_body": True})
    await send({"type": "http.response.body", "body": b"", "more_body": False})


def _framed(scope: Scope, headers: Headers) -> Headers:
    """A body of unknown length goes on as one; the length of a known one is kept."""
    if not first_of(scope["headers"], b"transfer-encoding"):
        return headers
    rest = [(name, value) for name, value in headers if name != b"content-length"]
    return [*rest, (b"transfer-encoding", b"chunked")]
