"""Here every WebSocket has a name for as long as it is open, which the lines of its log share."""

import uuid
from collections.abc import Awaitable, Callable
from typing import Any

from structlog.contextvars import bound_contextvars

App = Callable[[Any, Any, Any], Awaitable[None]]


def named(app: App) -> App:
    async def with_a_name(scope: Any, receive: Any, send: Any) -> None:
        with bound_contextvars(request_id=uuid.uuid4().hex):
            await app(scope, receive, send)

    return with_a_name
