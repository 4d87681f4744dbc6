"""Enforce the maximum size and minimum speed of request bodies.

Django stores a body of any length before a view runs, so all requests to Berth's own hosts pass through this
module first.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from django.conf import settings
from pydantic_core import to_json

from berth.core.errors import BerthError, RateLimited, RequestTimeout, TooLarge, Unauthenticated
from berth.server.api.parsers import BODY_MAX, max_body_size
from berth.server.api.problems import CONTENT_TYPE
from berth.server.api.transport.asgi import PATHS

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[Mapping[str, Any]], Awaitable[None]]
App = Callable[[Any, Any, Any], Awaitable[None]]
Check = Callable[["RequestSender"], Awaitable[bool]]

FIRST_SECONDS = 30.0  # seconds allowed for any body, regardless of its size
BYTES_PER_SECOND = 16 * 1024  # minimum upload rate after FIRST_SECONDS
DRAIN_SECONDS = 30.0
LARGE_BODIES_MAX = 8  # maximum number of concurrent large bodies per credential
TEXT = "text/plain; charset=utf-8"


class RequestSender(NamedTuple):
    """Bearer secret or session key of a request. Both are empty for an anonymous client."""

    secret: str = ""
    session_key: str = ""


@dataclass
class BodyLimitMiddleware:
    """ASGI middleware that rejects bodies with 413, 408, 401 or 429.

    A body above BODY_MAX needs a credential that `may_send_large` accepts, so that anonymous clients cannot
    fill the disk.
    """

    app: App
    may_send_large: Check

    def __post_init__(self) -> None:
        self._large: Counter[RequestSender] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        body = _Body(scope, receive, self)
        try:
            await body.check_size(content_length(scope))
            await self.app(scope, body.receive, send)
        except _Rejection as rejection:
            await reject(scope, receive, send, rejection.error)
        finally:
            body.release()

    async def begin_large_body(self, sender: RequestSender) -> None:
        """Count a large body toward its sender's limit until `end_large_body` is called.

        Raises _Rejection if the body is not allowed.
        """
        if not any(sender) or not await self.may_send_large(sender):
            message = f"A body of more than {BODY_MAX} bytes requires a valid token or browser session."
            raise _Rejection(Unauthenticated(message))
        if self._large[sender] >= LARGE_BODIES_MAX:
            raise _Rejection(
                RateLimited(
                    1,
                    f"At most {LARGE_BODIES_MAX} large bodies can be sent at once. Try again in 1 s.",
                )
            )
        self._large[sender] += 1

    def end_large_body(self, sender: RequestSender) -> None:
        self._large[sender] -= 1
        if not self._large[sender]:
            del self._large[sender]


class _Rejection(Exception):
    def __init__(self, error: BerthError) -> None:
        super().__init__(error.detail)
        self.error = error


class _Body:
    """Body of a request that is being received."""

    def __init__(self, scope: Scope, receive: Receive, limiter: BodyLimitMiddleware) -> None:
        self._receive = receive
        self._limiter = limiter
        self._sender = read_sender(scope)
        self._size_max = max_body_size(scope["path"])
        self._size = 0
        self._is_large = False
        self._is_complete = False
        self._started = asyncio.get_running_loop().time()

    async def check_size(self, size: int) -> None:
        """Check the declared length or the length received so far.

        Raises _Rejection if the body is too large.
        """
        if size > self._size_max:
            raise _Rejection(
                TooLarge(
                    f"The body exceeds {self._size_max} bytes, the maximum at this address. "
                    "Send a smaller body."
                )
            )
        if size > BODY_MAX and not self._is_large:
            await self._limiter.begin_large_body(self._sender)
            self._is_large = True

    async def receive(self) -> dict[str, Any]:
        """Return the next ASGI message. After the end of the body, wait for the client to disconnect."""
        if self._is_complete:
            return await self._receive()
        until = self._started + FIRST_SECONDS + self._size / BYTES_PER_SECOND
        try:
            async with asyncio.timeout_at(until):
                message = await self._receive()
        except TimeoutError:
            raise _Rejection(
                RequestTimeout(f"The body arrived at less than {BYTES_PER_SECOND} bytes per second.")
            ) from None
        self._size += len(message.get("body", b""))
        await self.check_size(self._size)
        self._is_complete = not message.get("more_body", False)
        return message

    def release(self) -> None:
        if self._is_large:
            self._limiter.end_large_body(self._sender)


async def reject(scope: Scope, receive: Receive, send: Send, error: BerthError) -> None:
    """Respond with the error, then keep reading for a while.

    Closing the connection with unread data would reset it, and the client would not see the response.
    """
    body, kind = error.detail.encode(), TEXT
    if scope["path"].startswith(PATHS):
        body, kind = to_json(error.to_problem()), CONTENT_TYPE
    headers = [
        (b"content-type", kind.encode()), (b"content-length", str(len(body)).encode()),
        (b"connection", b"close"), (b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff"),
    ]  # fmt: skip
    if retry_after := error.extra.get("retry_after"):
        headers.append((b"retry-after", str(retry_after).encode()))
    await send({"type": "http.response.start", "status": error.status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": True})
    try:
        async with asyncio.timeout(DRAIN_SECONDS):
            while (message := await receive())["type"] == "http.request" and message.get("more_body"):
                pass
    except TimeoutError:
        pass
    await send({"type": "http.response.body", "body": b"", "more_body": False})


def content_length(scope: Scope) -> int:
    """Return the value of the Content-Length header, or 0 if the header is missing or malformed."""
    length = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
    return int(length) if length.isdigit() else 0


def read_sender(scope: Scope) -> RequestSender:
    """Return a request's bearer secret, or the key of its browser session."""
    if secret := bearer_secret(scope):
        return RequestSender(secret=secret)
    cookies = b"; ".join(value for name, value in scope["headers"] if name == b"cookie").decode("latin-1")
    pairs = (cookie.strip().partition("=") for cookie in cookies.split(";"))
    key = next((value for name, _, value in pairs if name == settings.SESSION_COOKIE_NAME), "")
    return RequestSender(session_key=key)


def bearer_secret(scope: Scope) -> str:
    """Return the bearer token from the Authorization header, or an empty string."""
    header = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
    scheme, _, secret = header.decode("latin-1").partition(" ")
    return secret.strip() if scheme.lower() == "bearer" else ""
