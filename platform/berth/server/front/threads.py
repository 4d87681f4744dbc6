"""Threads that run synchronous HTTP request handlers. Each thread handles one request at a time."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from asgiref.sync import ThreadSensitiveContext

from berth.server.front.bodies import App, Receive, Scope, Send

IDLE_THREADS_MAX = 8


class RequestThreads:
    """ASGI middleware that gives each request one thread for all of its synchronous code.

    Django would start two threads, and one would only wait for the other.
    """

    def __init__(self, app: App) -> None:
        self.app = app
        self._idle: list[RequestThread] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        thread = self._idle.pop() if self._idle else RequestThread()
        try:
            async with ThreadSensitiveContext(executor=thread):
                await self.app(scope, receive, send)
        finally:
            if thread.is_idle and len(self._idle) < IDLE_THREADS_MAX:
                self._idle.append(thread)
            else:  # an aborted request may still be running
                thread.shutdown(wait=False)


class RequestThread(ThreadPoolExecutor):
    """Executor with a single thread, which starts on the first call."""

    def __init__(self) -> None:
        super().__init__(max_workers=1, thread_name_prefix="request")
        self._latest: Future[Any] | None = None

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        self._latest = super().submit(fn, *args, **kwargs)
        return self._latest

    @property
    def is_idle(self) -> bool:
        return self._latest is None or self._latest.done()
