"""Assign an ID to each WebSocket. All log lines of the WebSocket contain the ID."""

import uuid
from collections.abc import Awaitable, Callable
from typing import Any

from structlog.contextvars import bound_contextvars

App = Callable[[Any, Any, Any], Awaitable[None]]


def with_request_id(app: App) -> App:
    async def call_with_request_id(scope: Any, receive: Any, send: Any) -> None:
        with bound_contextvars(request_id=uuid.uuid4().hex):
            await app(scope, receive, send)

    return call_with_request_id
