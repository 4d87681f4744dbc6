"""Stream long answers under WSGI and ASGI."""

from collections.abc import AsyncIterator, Iterator
from itertools import islice

from asgiref.sync import sync_to_async
from django.core.handlers.asgi import ASGIRequest
from django.http import StreamingHttpResponse
from rest_framework.request import Request

AT_ONCE = 200


def streamed(
    request: Request, lines: Iterator[str], content_type: str, **headers: str
) -> StreamingHttpResponse:
    """`lines` may read from the database as they go; under ASGI the event loop stays free meanwhile."""
    asynchronous = isinstance(request._request, ASGIRequest)
    parts = _in_turn(lines) if asynchronous else lines
    return StreamingHttpResponse(parts, content_type=content_type, headers=headers)


async def _in_turn(lines: Iterator[str]) -> AsyncIterator[str]:
    """Always in the request's own thread, which is the one that owns the database connection."""
    while piece := await sync_to_async(_some)(lines):
        yield piece


def _some(lines: Iterator[str]) -> str:
    return "".join(islice(lines, AT_ONCE))
