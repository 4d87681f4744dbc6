"""Let many requests wait for database notifications without a thread or connection for each request."""

import asyncio
import threading
from collections.abc import Iterable

from django.db import connection

from berth.db.loops.wake import Waiter, wake

WAIT_SECONDS = 5.0
KEYS_PER_NOTIFICATION = 150  # maximum IDs per payload, which PostgreSQL limits to 8,000 bytes
RECONNECTED = "reconnected"  # sent after a reconnect, when notifications may have been missed


def notify(name: str, keys: Iterable[str]) -> None:
    """Notify listeners after the current transaction commits. Keys must not contain spaces."""
    remaining = sorted(set(keys))
    while remaining:
        wake(name, " ".join(remaining[:KEYS_PER_NOTIFICATION]))
        remaining = remaining[KEYS_PER_NOTIFICATION:]


class Wakeup:
    """Wake-up event of one request, set in the request's event loop."""

    def __init__(self, key: str) -> None:
        self.key = key
        self._loop = asyncio.get_running_loop()
        self._event = asyncio.Event()
        self._event.set()  # the awaited change may have happened before listening began

    def notify(self) -> None:
        """Set the event. Safe to call from any thread."""
        try:
            self._loop.call_soon_threadsafe(self._event.set)
        except RuntimeError:  # the event loop has closed, so the request has ended
            return

    async def wait(self, seconds: float) -> None:
        """Wait up to `seconds` seconds for a wake-up.

        Return immediately if one has arrived since the last wait.
        """
        try:
            async with asyncio.timeout(seconds):
                await self._event.wait()
        except TimeoutError:
            return
        self._event.clear()


class WakeupListener:
    """Listener with one thread, which runs while requests wait and exits shortly afterwards."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._wakeups: dict[str, set[Wakeup]] = {}
        self._thread: threading.Thread | None = None

    def add(self, wakeup: Wakeup) -> None:
        """Add a waiting request. Requests must also poll, because listening may begin with a short delay."""
        with self._lock:
            self._wakeups.setdefault(wakeup.key, set()).add(wakeup)
            if self._thread is None:
                self._thread = threading.Thread(target=self._listen, name=f"berth-{self._name}", daemon=True)
                self._thread.start()

    def remove(self, wakeup: Wakeup) -> None:
        with self._lock:
            waiting = self._wakeups.get(wakeup.key, set())
            waiting.discard(wakeup)
            if not waiting:
                self._wakeups.pop(wakeup.key, None)

    def _listen(self) -> None:
        try:
            with Waiter(self._name) as waiter:
                while self._continue_unless_idle():
                    payloads = waiter.wait(WAIT_SECONDS).reasons
                    self._notify(frozenset(key for keys in payloads for key in keys.split()))
        finally:
            connection.close()
            with self._lock:
                if self._thread is threading.current_thread():
                    self._thread = None

    def _continue_unless_idle(self) -> bool:
        with self._lock:
            if not self._wakeups:
                self._thread = None
            return bool(self._wakeups)

    def _notify(self, keys: frozenset[str]) -> None:
        with self._lock:
            notified_keys = list(self._wakeups) if RECONNECTED in keys else keys
            wakeups = [wakeup for key in notified_keys for wakeup in self._wakeups.get(key, ())]
        for wakeup in wakeups:
            wakeup.notify()
