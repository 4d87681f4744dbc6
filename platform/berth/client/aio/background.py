"""Background tasks of asyncio sessions, their wake-up signal, and awaitable futures."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from berth.client.aio.session import AsyncSession

T = TypeVar("T")
ResultFuture = asyncio.Future
sleep = asyncio.sleep


class BackgroundTasks:
    """Background tasks of a session, which run until `stop` is called.

    `notify` may be called from any thread.
    """

    def __init__(self) -> None:
        self.version = 0
        self._changed = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def is_running(self) -> bool:
        return bool(self._tasks)

    def start(self, *steps: Callable[[], Awaitable[None]]) -> None:
        self._loop = asyncio.get_running_loop()
        self._tasks = [asyncio.ensure_future(step()) for step in steps]

    async def stop(self) -> None:
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def notify(self) -> None:
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # a call may complete after the loop has closed
                self._loop.call_soon_threadsafe(self._wake)

    async def wait(self, version: int, seconds: float) -> None:
        """Wait up to `seconds` seconds until `notify` is called.

        Return immediately if it has already been called since `version`.
        """
        if self.version == version:
            # On Python 3.10, this error differs from the built-in TimeoutError.
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._changed.wait(), seconds)

    def _wake(self) -> None:
        self.version += 1
        self._changed.set()
        self._changed = asyncio.Event()


def to_result_future(future: "Future[T]") -> "ResultFuture[T]":
    """Wrap a future of the session so that the caller can await it."""
    return asyncio.wrap_future(future)


async def iterate_results(futures: "Sequence[ResultFuture[T]]", timeout: float | None) -> AsyncIterator[T]:
    """Yield the results in the order of `futures`. `timeout` is the total time limit in seconds."""
    deadline = None if timeout is None else time.monotonic() + timeout
    try:
        for future in futures:
            yield await asyncio.wait_for(
                future, None if deadline is None else max(0.0, deadline - time.monotonic())
            )
    finally:
        for future in futures:
            future.cancel()


def thread_safe_session(session: "AsyncSession") -> "ThreadSafeSession":
    return ThreadSafeSession(session)


class ThreadSafeSession:
    """Session interface for joblib, usable from threads outside the event loop."""

    def __init__(self, session: "AsyncSession") -> None:
        self._session = session
        self.concurrency = session.concurrency

    def ready_nodes(self) -> int:
        return self._session.last_ready_nodes

    def submit(self, function: Callable[..., Any], /, *args: Any) -> Future[Any]:
        return self._session.call(function, args)
