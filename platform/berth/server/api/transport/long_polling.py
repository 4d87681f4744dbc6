"""Long polling: delay a response until something changes or the client's timeout expires."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator

from asgiref.sync import sync_to_async
from django.core.handlers.asgi import ASGIRequest
from django.db import connection
from django.http import HttpResponse, StreamingHttpResponse
from rest_framework.request import Request

from berth.core.frames import CONTENT_TYPE, pack_frames
from berth.db.loops.wakeups import Wakeup, WakeupListener
from berth.server.api.problems import to_logged_error

WAIT_MAX = 25  # in seconds; many proxies close connections that are idle for longer
# Interval for detecting changes that send no wake-up, such as a killed pod or an ended workload.
RECHECK_SECONDS = 2.0
POLL_SECONDS = 0.1

Responder = Callable[[bool], bytes | None]


def long_poll(
    request: Request, respond: Responder, *, bell: WakeupListener, key: str, seconds: float
) -> HttpResponse | StreamingHttpResponse:
    """Return a response with the first result of `respond` that is not None.

    After `seconds`, `respond` is called with True and must return frames. An error in the first call sets the
    response's status code. Later errors are sent as frames with a `problem`.
    """
    data = respond(seconds <= 0)
    if data is not None:
        return HttpResponse(data, content_type=CONTENT_TYPE)
    is_async = isinstance(request._request, ASGIRequest)
    parts = _wait_async(respond, bell, key, seconds) if is_async else _wait_in_thread(respond, seconds)
    return StreamingHttpResponse(parts, content_type=CONTENT_TYPE, headers={"X-Accel-Buffering": "no"})


async def _wait_async(
    respond: Responder, bell: WakeupListener, key: str, seconds: float
) -> AsyncIterator[bytes]:
    """Long-poll under ASGI, without holding a thread or a database connection while waiting.

    Stop when there is a response, the deadline passes or the client disconnects.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    wakeup = Wakeup(key)
    bell.add(wakeup)
    try:
        while True:
            await wakeup.wait(min(RECHECK_SECONDS, max(0.0, deadline - loop.time())))
            if (
                data := await sync_to_async(_respond_and_disconnect)(respond, loop.time() >= deadline)
            ) is not None:
                yield data
                return
    finally:
        bell.remove(wakeup)


def _wait_in_thread(respond: Responder, seconds: float) -> Iterator[bytes]:
    """Long-poll under WSGI, where each request has a thread."""
    deadline = time.monotonic() + seconds
    data = None
    while data is None:
        time.sleep(POLL_SECONDS)
        data = _respond(respond, time.monotonic() >= deadline)
    yield data


def _respond_and_disconnect(respond: Responder, is_last_call: bool) -> bytes | None:
    try:
        return _respond(respond, is_last_call)
    finally:
        connection.close()


def _respond(respond: Responder, is_last_call: bool) -> bytes | None:
    try:
        return respond(is_last_call)
    except Exception as error:  # the status line has been sent, so report the error in a frame
        return pack_frames([({"problem": to_logged_error(error).to_problem()}, b"")])
