"""End streamed HTTP responses soon after the user loses permission to read them."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, suppress
from typing import Any

from asgiref.sync import sync_to_async
from django.conf import settings
from django.db import InterfaceError, OperationalError, connection
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.http.response import HttpResponseBase, StreamingHttpResponse

from berth.core.errors import RateLimited
from berth.server.api.problems import CONTENT_TYPE
from projects.acting import Acting
from projects.connections.credentials import Credential, roles_of, user_behind
from projects.connections.watch import WATCH, Connection

RECHECK_SECONDS = 60.0
END = object()
Roles = frozenset[tuple[Any, ...]]


class WatchedStreams:
    """Middleware for streamed responses to users, of pages and of the REST API."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        answer = self.get_response(request)
        if not isinstance(answer, StreamingHttpResponse) or not answer.is_async:
            return answer
        credential, user = credential_and_user(request)
        if credential is None or user is None:
            return answer
        if WATCH.count(user.pk) >= settings.BERTH_CONNECTIONS_PER_USER:
            return _too_many(request)
        parts: Any = answer.streaming_content
        answer.streaming_content = watched(parts, credential, user.pk, roles_of(user))
        return answer


def credential_and_user(request: HttpRequest) -> tuple[Credential | None, Any]:
    """Return a request's credential and user, or None for both without a signed-in user."""
    acting = getattr(request, "auth", None)  # set by the REST framework
    if isinstance(acting, Acting) and acting.token_id is not None:
        return Credential(token_id=acting.token_id), acting.user
    user = getattr(request, "user", None)
    key = request.session.session_key if hasattr(request, "session") else None
    if user is None or not user.is_authenticated or not key:
        return None, None
    return Credential(session_key=key), user


async def watched(
    parts: AsyncIterator[bytes], credential: Credential, user: int, roles: Roles
) -> AsyncIterator[bytes]:
    """Yield the parts until the credential ends or the user loses one of these roles.

    The stream is then cancelled, so that the client sees a broken connection instead of a complete response.
    """
    opened = WATCH.open(credential, user)
    ended = asyncio.create_task(_wait_for_end(opened, roles))
    try:
        async with aclosing(_iterate(parts)) as rest:
            while True:
                step = asyncio.create_task(_next(rest))
                try:
                    await asyncio.wait({step, ended}, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    if not step.done():
                        step.cancel()
                        with suppress(asyncio.CancelledError):
                            await step
                if ended.done():
                    raise asyncio.CancelledError
                part = step.result()
                if part is END:
                    return
                yield part  # type: ignore[misc]
    finally:
        WATCH.close(opened)
        ended.cancel()
        with suppress(asyncio.CancelledError, OperationalError, InterfaceError):
            await ended


async def _iterate(parts: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
    async for part in parts:
        yield part


async def _next(rest: AsyncIterator[bytes]) -> bytes | object:
    return await anext(rest, END)


async def _wait_for_end(opened: Connection, roles: Roles) -> None:
    while True:
        await opened.changed(RECHECK_SECONDS)
        if not await sync_to_async(_is_allowed, thread_sensitive=False)(opened.credential, roles):
            return


def _is_allowed(credential: Credential, roles: Roles) -> bool:
    try:
        user = user_behind(credential)
        return user is not None and roles <= roles_of(user)
    finally:
        connection.close()


def _too_many(request: HttpRequest) -> HttpResponse:
    error = RateLimited(
        5, f"At most {settings.BERTH_CONNECTIONS_PER_USER} concurrent connections per user. Close some first."
    )
    headers = {"Retry-After": str(error.retry_after)}
    if request.path.startswith("/api/"):
        return JsonResponse(error.to_problem(), status=429, content_type=CONTENT_TYPE, headers=headers)
    return HttpResponse(error.detail, status=429, content_type="text/plain; charset=utf-8", headers=headers)
