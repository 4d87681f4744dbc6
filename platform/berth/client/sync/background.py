"""Background threads of synchronous sessions, the counterpart of `berth.client.aio.background`."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from berth.client.sync.session import Session

T = TypeVar("T")
ResultFuture = Future
sleep = time.sleep


class BackgroundTasks:
    """Background threads of a session, which run until `stop` is called."""

    def __init__(self) -> None:
        self.version = 0
        self._changed = threading.Condition()
        self._threads: list[threading.Thread] = []

    @property
    def is_running(self) -> bool:
        return bool(self._threads)

    def start(self, *steps: Callable[[], None]) -> None:
        self._threads = [threading.Thread(target=step, name="berth-session", daemon=True) for step in steps]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        threads, self._threads = self._threads, []
        self.notify()
        for thread in threads:
            if thread is not threading.current_thread():
                thread.join(5.0)

    def notify(self) -> None:
        with self._changed:
            self.version += 1
            self._changed.notify_all()

    def wait(self, version: int, seconds: float) -> None:
        """Wait up to `seconds` seconds for a call to `notify`.

        Return immediately if `notify` has been called since `version`.
        """
        with self._changed:
            self._changed.wait_for(lambda: self.version != version, seconds)


def to_result_future(future: Future[T]) -> Future[T]:
    return future


def iterate_results(futures: Sequence[Future[T]], timeout: float | None) -> Iterator[T]:
    """Yield the results in the order of `futures`. `timeout` is the total time limit in seconds."""
    deadline = None if timeout is None else time.monotonic() + timeout
    return _iterate_until(futures, deadline)


def _iterate_until(futures: Sequence[Future[T]], deadline: float | None) -> Iterator[T]:
    remaining = list(reversed(futures))
    try:
        while remaining:
            yield remaining.pop().result(None if deadline is None else max(0.0, deadline - time.monotonic()))
    finally:
        for future in remaining:
            future.cancel()


def thread_safe_session(session: "Session") -> "Session":
    return session
