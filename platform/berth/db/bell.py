"""Let requests wait for a wake-up without a thread or connection per request."""

import asyncio
import threading
from collections.abc import Iterable

from django.db import connection

from berth.db.wake import Waiter, wake

PATIENCE_SECONDS = 5.0
KEYS_AT_ONCE = 150  # keys per notification: PostgreSQL limits its payload to 8,000 bytes
EVERYBODY = "reconnected"  # notifications may have been missed


def ring(name: str, keys: Iterable[str]) -> None:
    """Notify listeners after the current transaction commits. Keys contain no spaces."""
    left = sorted(set(keys))
    while left:
        wake(name, " ".join(left[:KEYS_AT_ONCE]))
        left = left[KEYS_AT_ONCE:]


class Wakeup:
    """Wake-ups for one request, delivered to its event loop."""

    def __init__(self, key: str) -> None:
        self.key = key
        self._loop = asyncio.get_running_loop()
        self._rung = asyncio.Event()
        self._rung.set()  # set initially: something may have happened before the request listened

    def ring(self) -> None:
        """Set the event; safe to call from any thread."""
        try:
            self._loop.call_soon_threadsafe(self._rung.set)
        except RuntimeError:  # the event loop has closed, and the request with it
            return

    async def wait(self, seconds: float) -> None:
        """Wait for a ring or the timeout. Return at once if there was a ring since the last wait."""
        try:
            async with asyncio.timeout(seconds):
                await self._rung.wait()
        except TimeoutError:
            return
        self._rung.clear()


class Bell:
    """One listening thread per process, which runs while requests wait, and a little longer."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._wakeups: dict[str, set[Wakeup]] = {}
        self._thread: threading.Thread | None = None

    def add(self, wakeup: Wakeup) -> None:
        """Start listening, possibly after a short delay; waiting requests also poll."""
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
                while self._has_waiters():
                    heard = waiter.wait(PATIENCE_SECONDS).reasons
                    self._ring(frozenset(key for keys in heard for key in keys.split()))
        finally:
            connection.close()
            with self._lock:
                if self._thread is threading.current_thread():
                    self._thread = None

    def _has_waiters(self) -> bool:
        with self._lock:
            if not self._wakeups:
                self._thread = None
            return bool(self._wakeups)

    def _ring(self, keys: frozenset[str]) -> None:
        with self._lock:
            rung = list(self._wakeups) if EVERYBODY in keys else keys
            wakeups = [wakeup for key in rung for wakeup in self._wakeups.get(key, ())]
        for wakeup in wakeups:
            wakeup.ring()
