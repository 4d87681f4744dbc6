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
from berth.client.sessions.payload import outcome_of
from berth.core.frames import Frame

log = logging.getLogger("berth.session")

BATCH_CALLS = 500
BATCH_BYTES = 4 << 20


class CallFuture(Future[Any]):
    """Future of a call. `node` and `attempts` are set when it is done."""

    node: int | None = None
    attempts: int = 0

    def __init__(self, on_cancel: Callable[["CallFuture"], None], key: uuid.UUID) -> None:
        super().__init__()
        self.key = key
        self._on_cancel = on_cancel

    def cancel(self) -> bool:
        """Cancel the call. A call that runs is not interrupted; its result is dropped."""
        cancelled = super().cancel()
        if cancelled:
            self._on_cancel(self)
        return cancelled


Settled = tuple[CallFuture, Any, BaseException | None] | None


@dataclass
class Gathering:
    """A broadcast that waits for the answers of all nodes that were ready when it was sent."""

    future: CallFuture
    expected: dict[uuid.UUID, int] | None = None
    got: dict[uuid.UUID, tuple[Any, BaseException | None]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Outgoing:
    key: uuid.UUID
    payload: bytes
    everywhere: bool = False

    def frame(self) -> Frame:
        return {"key": str(self.key), "everywhere": self.everywhere}, self.payload


class PendingCalls:
    """Calls without an outcome. Thread-safe; `changed` is called after every change."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._calls: dict[uuid.UUID, CallFuture] = {}
        self._broadcasts: dict[uuid.UUID, Gathering] = {}
        self._outgoing: deque[Outgoing] = deque()
        self._given_up: list[uuid.UUID] = []
        self._fatal: BaseException | None = None
        self.changed: Callable[[], None] = lambda: None

    @property
    def outstanding(self) -> int:
        with self._lock:
            return len(self._calls) + len(self._broadcasts)

    @property
    def fatal(self) -> BaseException | None:
        return self._fatal

    def add(self, payload: bytes, *, everywhere: bool = False) -> CallFuture:
        key = uuid.uuid4()
        future = CallFuture(self._cancelled, key)
        with self._lock:
            if self._fatal is not None:
                raise self._fatal
            if everywhere:
                self._broadcasts[key] = Gathering(future)
            else:
                self._calls[key] = future
            self._outgoing.append(Outgoing(key, payload, everywhere))
        self.changed()
        return future

    def take_batch(self) -> list[Outgoing]:
        """Remove and return the calls for one request; a broadcast is sent alone."""
        with self._lock:
            batch: list[Outgoing] = []
            size = 0
            while self._outgoing and len(batch) < BATCH_CALLS:
                following = self._outgoing[0]
                size += len(following.payload)
                if batch and (following.everywhere or size > BATCH_BYTES):
                    break
                batch.append(self._outgoing.popleft())
                if following.everywhere:
                    break
            return batch

    def requeue(self, batch: Iterable[Outgoing]) -> None:
        with self._lock:
            self._outgoing.extendleft(reversed(list(batch)))

    def take_cancelled(self) -> list[uuid.UUID]:
        """Remove and return the keys of calls that were cancelled after they were sent."""
        with self._lock:
            cancelled, self._given_up = self._given_up, []
            return cancelled

    def set_broadcast_nodes(self, broadcasts: Iterable[Mapping[str, Any]]) -> None:
        """Record the nodes to which the server has sent each broadcast."""
        for broadcast in broadcasts:
            key = uuid.UUID(broadcast["key"])
            with self._lock:
                gathering = self._broadcasts.get(key)
                if gathering is None:
                    continue
                gathering.expected = {uuid.UUID(one["key"]): one["node"] for one in broadcast["nodes"]}
                settled = self._gathered(key, gathering)
            self._settle(settled)

    def take(self, words: Mapping[str, Any], data: bytes) -> None:
        """Handle one outcome. Only results of this client's calls are unpickled: unpickling runs code."""
        if words.get("late"):
            if words["outcome"] != "value":
                message = (words.get("error") or {}).get("message", "")
                log.warning(
                    "node %s, which came later, failed in a broadcast: %s", words.get("node"), message
                )
            return
        key = uuid.UUID(words["key"])
        if not self._waits_for(uuid.UUID(words["broadcast"]) if words.get("broadcast") else key):
            return
        value, error = outcome_of(words, data)
        settled: Settled = None
        with self._lock:
            if words.get("broadcast"):
                parent = uuid.UUID(words["broadcast"])
                gathering = self._broadcasts.get(parent)
                if gathering is not None:
                    gathering.got[key] = value, error
                    settled = self._gathered(parent, gathering)
            elif key in self._broadcasts:
                future = self._broadcasts.pop(key).future
                settled = future, None, error or CallFailed("It was given up.")
            elif key in self._calls:
                future = self._calls.pop(key)
                future.node, future.attempts = words.get("node"), int(words.get("attempts", 0))
                settled = future, value, error
        self._settle(settled)

    def fail(self, error: BaseException) -> None:
        """Fail all outstanding calls and every call that is added later."""
        with self._lock:
            self._fatal = self._fatal or error
            left = [*self._calls.values(), *(one.future for one in self._broadcasts.values())]
            self._calls, self._broadcasts = {}, {}
            self._outgoing.clear()
        for future in left:
            settle(future, None, error)
        self.changed()

    def cancel_all(self) -> None:
        with self._lock:
            left = [*self._calls.values(), *(one.future for one in self._broadcasts.values())]
        for future in left:
            future.cancel()

    def _waits_for(self, key: uuid.UUID) -> bool:
        with self._lock:
            return key in self._calls or key in self._broadcasts

    def _gathered(self, key: uuid.UUID, gathering: Gathering) -> Settled:
        """Return the results in the order of nodes, or the first node's error; None until all are there."""
        expected = gathering.expected
        if expected is None or not expected.keys() <= gathering.got.keys():
            return None
        del self._broadcasts[key]
        results = [gathering.got[child] for child in sorted(expected, key=expected.__getitem__)]
        error = next((error for _, error in results if error is not None), None)
        return gathering.future, [value for value, _ in results], error

    def _settle(self, settled: Settled) -> None:
        """Complete a future outside the lock: its callbacks may add calls."""
        if settled is not None:
            settle(*settled)
        self.changed()

    def _cancelled(self, future: CallFuture) -> None:
        with self._lock:
            removed = self._calls.pop(future.key, None) or self._broadcasts.pop(future.key, None)
            if removed is None:
                return
            waiting = [call for call in self._outgoing if call.key != future.key]
            if len(waiting) < len(self._outgoing):
                self._outgoing = deque(waiting)
            else:
                self._given_up.append(future.key)
        self.changed()


def settle(future: Future[Any], value: Any, error: BaseException | None) -> None:
    try:
        if not future.set_running_or_notify_cancel():
            return
    except (InvalidStateError, RuntimeError):
        return
    if error is None:
        future.set_result(value)
    else:
        future.set_exception(error)
