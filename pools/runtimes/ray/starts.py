"""Start pods concurrently in background threads."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any

THREADS = 8


class BackgroundStarts:
    """Background calls that start pods, at most one per pod."""

    def __init__(self) -> None:
        # Use separate threads, so that unresponsive nodes do not delay reports.
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="ray-starts")
        self._calls: dict[str, Future[None]] = {}

    def begin(self, pod_id: str, call: Callable[..., None], *arguments: Any) -> None:
        self._calls[pod_id] = self._threads.submit(call, *arguments)

    def has_call(self, pod_id: str) -> bool:
        """Return whether the pod has a call whose result has not been read yet."""
        return pod_id in self._calls

    def wait_for_result(self, pod_id: str) -> None:
        """Wait for the call that starts the pod, and raise its error, if any."""
        self._calls.pop(pod_id).result()

    def wait_ignoring_error(self, pod_id: str) -> None:
        """Wait for the call that starts the pod, if there is one, and ignore its error."""
        if pod_id in self._calls:
            with suppress(Exception):
                self.wait_for_result(pod_id)
