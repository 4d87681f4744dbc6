"""Track pending calls and deliver their outcomes."""

import logging
import threading
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass, field
from typing import Any

from berth.client.errors import CallFailed
from berth.client.sessions.payload import decode_outcome
from berth.core.frames import Frame

log = logging.getLogger("berth.session")

BATCH_CALLS = 500
BATCH_BYTES = 4 << 20


class CallFuture(Future[Any]):
    """Future of a call. `node` and `attempts` are set once the call is done."""

    node: int | None = None
    attempts: int = 0

    def __init__(self, on_cancel: Callable[["CallFuture"], None], key: uuid.UUID) -> None:
        super().__init__()
        self.key = key
        self._on_cancel = on_cancel

    def cancel(self) -> bool:
        """Cancel the call. Return False if it is already done.

        A running call is not interrupted, but its result is discarded.
        """
        cancelled = super().cancel()
        if cancelled:
            self._on_cancel(self)
        return cancelled


Completion = tuple[CallFuture, Any, BaseException | None] | None


@dataclass
class PendingBroadcast:
    """Broadcast that waits for results from all nodes that were ready when it was sent."""

    future: CallFuture
    expected: dict[uuid.UUID, int] | None = None
    received: dict[uuid.UUID, tuple[Any, BaseException | None]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class OutgoingCall:
    key: uuid.UUID
    payload: bytes
    everywhere: bool = False

    def frame(self) -> Frame:
        return {"key": str(self.key), "everywhere": self.everywhere}, self.payload


class PendingCalls:
    """Calls that have no outcome yet. Thread-safe. `changed` is called after every change."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._calls: dict[uuid.UUID, CallFuture] = {}
        self._broadcasts: dict[uuid.UUID, PendingBroadcast] = {}
        self._outgoing: deque[OutgoingCall] = deque()
        self._cancelled_after_send: list[uuid.UUID] = []
        self._fatal: BaseException | None = None
        self.changed: Callable[[], None] = lambda: None

    @property
    def outstanding_count(self) -> int:
        with self._lock:
            return len(self._calls) + len(self._broadcasts)

    @property
    def fatal_error(self) -> BaseException | None:
        return self._fatal

    def add(self, payload: bytes, *, everywhere: bool = False) -> CallFuture:
        key = uuid.uuid4()
        future = CallFuture(self._on_cancelled, key)
        with self._lock:
            if self._fatal is not None:
                raise self._fatal
            if everywhere:
                self._broadcasts[key] = PendingBroadcast(future)
            else:
                self._calls[key] = future
            self._outgoing.append(OutgoingCall(key, payload, everywhere))
        self.changed()
        return future

    def take_batch(self) -> list[OutgoingCall]:
        """Remove and return the calls to send in one request. A broadcast is sent in a separate request."""
        with self._lock:
            batch: list[OutgoingCall] = []
            size = 0
            while self._outgoing and len(batch) < BATCH_CALLS:
                next_call = self._outgoing[0]
                size += len(next_call.payload)
                if batch and (next_call.everywhere or size > BATCH_BYTES):
                    break
                batch.append(self._outgoing.popleft())
                if next_call.everywhere:
                    break
            return batch

    def requeue(self, batch: Iterable[OutgoingCall]) -> None:
        with self._lock:
            self._outgoing.extendleft(reversed(list(batch)))

    def take_cancelled_calls(self) -> list[uuid.UUID]:
        """Remove and return the keys of calls that were cancelled after they were sent."""
        with self._lock:
            cancelled, self._cancelled_after_send = self._cancelled_after_send, []
            return cancelled

    def set_broadcast_nodes(self, broadcasts: Iterable[Mapping[str, Any]]) -> None:
        """Record the nodes to which the server has sent each broadcast."""
        for broadcast in broadcasts:
            key = uuid.UUID(broadcast["key"])
            with self._lock:
                pending_broadcast = self._broadcasts.get(key)
                if pending_broadcast is None:
                    continue
                pending_broadcast.expected = {
                    uuid.UUID(node["key"]): node["node"] for node in broadcast["nodes"]
                }
                completion = self._collect_broadcast(key, pending_broadcast)
            self._complete(completion)

    def handle_outcome(self, header: Mapping[str, Any], data: bytes) -> None:
        """Handle one outcome.

        Outcomes of unknown calls are ignored and never unpickled, because unpickling can run code.
        """
        if header.get("late"):
            if header["outcome"] != "value":
                message = (header.get("error") or {}).get("message", "")
                log.warning(
                    "node %s, which joined later, failed to run a broadcast: %s", header.get("node"), message
                )
            return
        key = uuid.UUID(header["key"])
        if not self._is_pending(uuid.UUID(header["broadcast"]) if header.get("broadcast") else key):
            return
        value, error = decode_outcome(header, data)
        completion: Completion = None
        with self._lock:
            if header.get("broadcast"):
                parent = uuid.UUID(header["broadcast"])
                pending_broadcast = self._broadcasts.get(parent)
                if pending_broadcast is not None:
                    pending_broadcast.received[key] = value, error
                    completion = self._collect_broadcast(parent, pending_broadcast)
            elif key in self._broadcasts:
                future = self._broadcasts.pop(key).future
                completion = future, None, error or CallFailed("The broadcast was abandoned.")
            elif key in self._calls:
                future = self._calls.pop(key)
                future.node, future.attempts = header.get("node"), int(header.get("attempts", 0))
                completion = future, value, error
        self._complete(completion)

    def fail(self, error: BaseException) -> None:
        """Fail all outstanding calls, and make `add` raise the same error from now on."""
        with self._lock:
            self._fatal = self._fatal or error
            open_futures = [*self._calls.values(), *(pending.future for pending in self._broadcasts.values())]
            self._calls, self._broadcasts = {}, {}
            self._outgoing.clear()
        for future in open_futures:
            complete_future(future, None, error)
        self.changed()

    def cancel_all(self) -> None:
        with self._lock:
            open_futures = [*self._calls.values(), *(pending.future for pending in self._broadcasts.values())]
        for future in open_futures:
            future.cancel()

    def _is_pending(self, key: uuid.UUID) -> bool:
        with self._lock:
            return key in self._calls or key in self._broadcasts

    def _collect_broadcast(self, key: uuid.UUID, pending_broadcast: PendingBroadcast) -> Completion:
        """Return the future, the results and the first error once all results have arrived.

        Return None until then.
        """
        expected = pending_broadcast.expected
        if expected is None or not expected.keys() <= pending_broadcast.received.keys():
            return None
        del self._broadcasts[key]
        results = [pending_broadcast.received[child] for child in sorted(expected, key=expected.__getitem__)]
        error = next((error for _, error in results if error is not None), None)
        return pending_broadcast.future, [value for value, _ in results], error

    def _complete(self, completion: Completion) -> None:
        """Complete a future outside the lock, because its callbacks may add calls."""
        if completion is not None:
            complete_future(*completion)
        self.changed()

    def _on_cancelled(self, future: CallFuture) -> None:
        with self._lock:
            removed = self._calls.pop(future.key, None) or self._broadcasts.pop(future.key, None)
            if removed is None:
                return
            waiting = [call for call in self._outgoing if call.key != future.key]
            if len(waiting) < len(self._outgoing):
                self._outgoing = deque(waiting)
            else:
                self._cancelled_after_send.append(future.key)
        self.changed()


def complete_future(future: Future[Any], value: Any, error: BaseException | None) -> None:
    try:
        if not future.set_running_or_notify_cancel():
            return
    except (InvalidStateError, RuntimeError):
        return
    if error is None:
        future.set_result(value)
    else:
        future.set_exception(error)
