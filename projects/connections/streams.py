"""HTTP answers that are still being sent end soon after the right to them does."""

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
from projects.connections.credentials import Credential, person_behind, roles_of
from projects.connections.watch import WATCH, Connection

LOOK_AGAIN_SECONDS = 60.0
END = object()
Roles = frozenset[tuple[Any, ...]]


class WatchedStreams:
    """Middleware for streamed answers to people, of pages and of REST alike."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        answer = self.get_response(request)
        if not isinstance(answer, StreamingHttpResponse) or not answer.is_async:
            return answer
        credential, person = opened_with(request)
        if credential is None or person is None:
            return answer
        if WATCH.count(person.pk) >= settings.BERTH_CONNECTIONS_PER_USER:
            return _too_many(request)
        parts: Any = answer.streaming_content
        answer.streaming_content = watched(parts, credential, person.pk, roles_of(person))
        return answer


def opened_with(request: HttpRequest) -> tuple[Credential | None, Any]:
    """The credential and the person of a request; nothing for machines and strangers."""
    acting = getattr(request, "auth", None)  # set by the REST framework
    if isinstance(acting, Acting) and acting.token_id is not None:
        return Credential(token_id=acting.token_id), acting.user
    user = getattr(request, "user", None)
    key = request.session.session_key if hasattr(request, "session") else None
    if user is None or not user.is_authenticated or not key:
        return None, None
    return Credential(session_key=key), user


async def watched(
    parts: AsyncIterator[bytes], credential: Credential, person: int, roles: Roles
) -> AsyncIterator[bytes]:
    """The parts, until the credential ends or the person loses one of these roles.

    Then the stream counts as cancelled, so that the client sees a broken connection and not a whole answer.
    """
    opened = WATCH.open(credential, person)
    ended = asyncio.create_task(_ended(opened, roles))
    try:
        async with aclosing(_iterated(parts)) as rest:
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


async def _iterated(parts: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
    async for part in parts:
        yield part


async def _next(rest: AsyncIterator[bytes]) -> bytes | object:
    return await anext(rest, END)


async def _ended(opened: Connection, roles: Roles) -> None:
    while True:
        await opened.changed(LOOK_AGAIN_SECONDS)
        if not await sync_to_async(_may_go_on, thread_sensitive=False)(opened.credential, roles):
            return


def _may_go_on(credential: Credential, roles: Roles) -> bool:
    try:
        user = person_behind(credential)
        return user is not None and roles <= roles_of(user)
    finally:
        connection.close()


def _too_many(request: HttpRequest) -> HttpResponse:
    error = RateLimited(
        5, f"At most {settings.BERTH_CONNECTIONS_PER_USER} connections of one person. Close some first."
    )
    headers = {"Retry-After": str(error.retry_after)}
    if request.path.startswith("/api/"):
        return JsonResponse(error.to_problem(), status=429, content_type=CONTENT_TYPE, headers=headers)
    return HttpResponse(error.detail, status=429, content_type="text/plain; charset=utf-8", headers=headers)
