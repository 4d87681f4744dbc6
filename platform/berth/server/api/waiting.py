"""Long polling: hold an answer until something changes or the client's timeout expires."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator

from asgiref.sync import sync_to_async
from django.core.handlers.asgi import ASGIRequest
from django.db import connection
from django.http import HttpResponse, StreamingHttpResponse
from rest_framework.request import Request

from berth.core.frames import CONTENT_TYPE, packed
from berth.db.bell import Bell, Ear
from berth.server.api.problems import understood_and_logged

WAIT_MAX = 25  # seconds; proxies cut off who says nothing for longer
LOOK_EVERY = 2.0  # what nobody rings for: a pod that was killed, a workload that ended
POLL = 0.1

Answer = Callable[[bool], bytes | None]


def held_back(
    request: Request, answer: Answer, *, bell: Bell, key: str, seconds: float
) -> HttpResponse | StreamingHttpResponse:
    """`answer(last)` gives frames, or None while there is nothing to say; the last time it has to.

    The first look is taken here, so that a refusal has its status; a later one comes as a frame `problem`.
    """
    data = answer(seconds <= 0)
    if data is not None:
        return HttpResponse(data, content_type=CONTENT_TYPE)
    asynchronous = isinstance(request._request, ASGIRequest)
    parts = _waited(answer, bell, key, seconds) if asynchronous else _waited_in_a_thread(answer, seconds)
    return StreamingHttpResponse(parts, content_type=CONTENT_TYPE, headers={"X-Accel-Buffering": "no"})


async def _waited(answer: Answer, bell: Bell, key: str, seconds: float) -> AsyncIterator[bytes]:
    """Holds neither a thread nor a connection meanwhile; cancelled when the client goes."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    ear = Ear(key)
    bell.add(ear)
    try:
        while True:
            await ear.wait(min(LOOK_EVERY, max(0.0, deadline - loop.time())))
            if (data := await sync_to_async(_look)(answer, loop.time() >= deadline)) is not None:
                yield data
                return
    finally:
        bell.remove(ear)


def _waited_in_a_thread(answer: Answer, seconds: float) -> Iterator[bytes]:
    """For servers of one thread per request."""
    deadline = time.monotonic() + seconds
    data = None
    while data is None:
        time.sleep(POLL)
        data = _safely(answer, time.monotonic() >= deadline)
    yield data


def _look(answer: Answer, last: bool) -> bytes | None:
    try:
        return _safely(answer, last)
    finally:
        connection.close()


def _safely(answer: Answer, last: bool) -> bytes | None:
    try:
        return answer(last)
    except Exception as error:  # the headers are sent: this is the way that is left to say it
        return packed([({"problem": understood_and_logged(error).to_problem()}, b"")])
