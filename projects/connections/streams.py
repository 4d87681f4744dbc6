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
from projects.actor import Actor
from projects.connections.credentials import Credential, load_active_user, load_roles
from projects.connections.watch import WATCHER, Connection

RECHECK_SECONDS = 60.0
END_OF_STREAM = object()
Roles = frozenset[tuple[Any, ...]]


class StreamWatchMiddleware:
    """Middleware that ends streamed responses when the user loses permission to read them."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        response = self.get_response(request)
        if not isinstance(response, StreamingHttpResponse) or not response.is_async:
            return response
        credential, user = credential_and_user(request)
        if credential is None or user is None:
            return response
        if WATCHER.count(user.pk) >= settings.BERTH_CONNECTIONS_PER_USER:
            return _too_many_connections(request)
        parts: Any = response.streaming_content
        response.streaming_content = watch_stream(parts, credential, user.pk, load_roles(user))
        return response


def credential_and_user(request: HttpRequest) -> tuple[Credential | None, Any]:
    """Return a request's credential and user. Both are None if no user is signed in."""
    actor = getattr(request, "auth", None)  # attribute set by Django REST framework
    if isinstance(actor, Actor) and actor.token_id is not None:
        return Credential(token_id=actor.token_id), actor.user
    user = getattr(request, "user", None)
    key = request.session.session_key if hasattr(request, "session") else None
    if user is None or not user.is_authenticated or not key:
        return None, None
    return Credential(session_key=key), user


async def watch_stream(
    parts: AsyncIterator[bytes], credential: Credential, user: int, roles: Roles
) -> AsyncIterator[bytes]:
    """Yield the response's `parts` while the credential is valid and the user has all `roles`.

    Afterwards, cancel the stream, so that the client receives a broken connection instead of a seemingly
    complete response.
    """
    watched_connection = WATCHER.open(credential, user)
    ended = asyncio.create_task(_wait_for_end(watched_connection, roles))
    try:
        async with aclosing(_as_generator(parts)) as rest:
            while True:
                step = asyncio.create_task(_next_part(rest))
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
                if part is END_OF_STREAM:
                    return
                yield part  # type: ignore[misc]
    finally:
        WATCHER.close(watched_connection)
        ended.cancel()
        with suppress(asyncio.CancelledError, OperationalError, InterfaceError):
            await ended


async def _as_generator(parts: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
    async for part in parts:
        yield part


async def _next_part(rest: AsyncIterator[bytes]) -> bytes | object:
    return await anext(rest, END_OF_STREAM)


async def _wait_for_end(watched_connection: Connection, roles: Roles) -> None:
    while True:
        await watched_connection.wait_for_change(RECHECK_SECONDS)
        if not await sync_to_async(_is_allowed, thread_sensitive=False)(watched_connection.credential, roles):
            return


def _is_allowed(credential: Credential, roles: Roles) -> bool:
    try:
        user = load_active_user(credential)
        return user is not None and roles <= load_roles(user)
    finally:
        connection.close()


def _too_many_connections(request: HttpRequest) -> HttpResponse:
    error = RateLimited(
        5, f"Limit of {settings.BERTH_CONNECTIONS_PER_USER} concurrent connections reached. Close some first."
    )
    headers = {"Retry-After": str(error.retry_after)}
    if request.path.startswith("/api/"):
        return JsonResponse(error.to_problem(), status=429, content_type=CONTENT_TYPE, headers=headers)
    return HttpResponse(error.detail, status=429, content_type="text/plain; charset=utf-8", headers=headers)
