"""Run calls to one cluster in background threads, so that a slow cluster does not delay other pools."""

import logging
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

log = logging.getLogger(__name__)

THREADS = 8
CALLS_MAX = 2000  # maximum unfinished calls; further calls are rejected
PATIENCE = 0.5  # how many seconds a caller keeps waiting if no other call finishes
WAIT_MAX = 5.0  # maximum number of seconds that a caller waits for its call
RESULT_SECONDS = 60.0  # seconds after which an unread result is dropped
COOLDOWN = 10.0  # for this many seconds after a slow call, callers do not wait for results
T = TypeVar("T")


class CallStillRunning(Exception):
    """Raised if a call takes too long for its caller, but continues in the background."""


@dataclass(slots=True)
class _WorkerCall:
    action: str
    run: Callable[[], Any]
    future: "Future[Any]" = field(default_factory=Future)
    is_late: bool = False
    finished_at: float | None = None


class Worker:
    """Threads that run calls for pods, one call per pod at a time.

    `on_late` is called if a call finishes after the caller has stopped waiting.
    """

    def __init__(self, name: str, patience: float, on_late: Callable[[], None]) -> None:
        self.patience = patience
        self._name, self._on_late = name, on_late
        self._queue: queue.SimpleQueue[_WorkerCall | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._calls: dict[str, _WorkerCall] = {}
        self._unfinished = 0
        self._threads = 0
        self._drop_at = 0.0  # time at which unread results will next be dropped
        self._wait_from = 0.0  # until this time, callers return at once, because the cluster is slow
        self._finished_at = 0.0  # time at which the last call finished

    def run(self, pod_id: str, action: str, call: Callable[[], T]) -> T:
        """Run a call for a pod after the pod's earlier calls, and return its result.

        The caller waits only briefly. If CallStillRunning is raised, repeat the same action later to get the
        result.
        """
        while True:
            with self._lock:
                current = self._calls.get(pod_id) or self._submit(pod_id, _WorkerCall(action, call))
            if not self._wait_until_finished(current):
                raise CallStillRunning
            with self._lock:
                # Another caller that waited for the same call may have removed it already.
                if self._calls.get(pod_id) is current:
                    del self._calls[pod_id]
            if current.action == action:
                result: T = current.future.result()
                return result
            if (error := current.future.exception()) is not None:
                log.info("a call to %s for pod %s failed: %s", self._name, pod_id, error)

    def begin(self, pod_id: str, action: str, call: Callable[[], object]) -> None:
        """Queue a call for a pod without waiting, unless the pod already has a call.

        A later `run` of the same action returns the result.
        """
        with self._lock, suppress(CallStillRunning):
            if pod_id not in self._calls:
                self._submit(pod_id, _WorkerCall(action, call))

    def close(self) -> None:
        """Stop the threads after their current calls. Queued calls never run."""
        with self._lock:
            self._calls.clear()
            for _ in range(self._threads):
                self._queue.put(None)

    def _submit(self, pod_id: str, call: _WorkerCall) -> _WorkerCall:
        self._drop_unread_results()
        if self._unfinished >= CALLS_MAX:
            raise CallStillRunning
        self._calls[pod_id] = call
        self._unfinished += 1
        self._queue.put(call)
        if self._threads < min(THREADS, len(self._calls)):
            self._threads += 1
            # Use daemon threads, because a hanging call must not delay process exit.
            threading.Thread(target=self._run_calls, name=f"kubernetes-{self._threads}", daemon=True).start()
        return call

    def _drop_unread_results(self) -> None:
        """Discard results that no caller has read, for example because a report showed the outcome."""
        now = time.monotonic()
        if now >= self._drop_at:
            self._drop_at = now + RESULT_SECONDS
            self._calls = {
                pod_id: call
                for pod_id, call in self._calls.items()
                if call.finished_at is None or now - call.finished_at < RESULT_SECONDS
            }

    def _wait_until_finished(self, call: _WorkerCall) -> bool:
        """Wait for the call, and return whether it has finished.

        Do not wait if the cluster was slow recently. Wait longer whenever another call finishes, because this
        call may have been queued behind it.
        """
        began = time.monotonic()
        is_waiting = began >= self._wait_from
        until = began + self.patience if is_waiting else began
        while not wait([call.future], max(until - time.monotonic(), 0)).done:
            until = min(self._finished_at + self.patience, began + WAIT_MAX)
            if not is_waiting or until <= time.monotonic():
                if is_waiting:
                    self._wait_from = time.monotonic() + COOLDOWN
                call.is_late = True
                return call.future.done()
        return True

    def _run_calls(self) -> None:
        while (call := self._queue.get()) is not None:
            try:
                call.future.set_result(call.run())
            except Exception as error:
                call.future.set_exception(error)
            self._finished_at = call.finished_at = time.monotonic()
            with self._lock:
                self._unfinished -= 1
            if call.is_late:
                self._on_late()
