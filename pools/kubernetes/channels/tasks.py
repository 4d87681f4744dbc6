"""Cancel asyncio tasks."""

import asyncio
import logging
from typing import TypeVar

from pools.runtimes.base import ChannelRejected, RuntimeFailure

log = logging.getLogger(__name__)

T = TypeVar("T")


async def cancel_task(task: asyncio.Task[T]) -> T | None:
    """Cancel a task. Return its result, or None if it has none. Log unexpected exceptions."""
    task.cancel()
    await asyncio.wait({task})
    if task.cancelled():
        return None
    error = task.exception()
    if error is None:
        return task.result()
    if not isinstance(error, OSError | ChannelRejected | RuntimeFailure):
        log.error("a channel failed", exc_info=error)
    return None
