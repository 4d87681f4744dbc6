"""Thread in a web process that forwards change events to open pages."""

import asyncio
import json
import math
import threading
import time
from collections import deque
from typing import Any

from django.db import connection

from berth.db.loops.wake import Waiter
from berth.server.web.live.announcer import NAME

ChangeEvent = dict[str, Any]
WAIT_SECONDS = 5.0
IDLE_SECONDS = 60.0  # seconds that the thread keeps running without an open page
EVENTS_KEPT = 1000  # number of events kept for pages that have been rendered but are not listening yet
CLOCK_SKEW_SECONDS = 0.2  # maximum clock difference between two web processes
QUEUED_EVENTS_MAX = 1000  # maximum queued events per page; on overflow, EVERYTHING_CHANGED replaces them
EVERYTHING_CHANGED: ChangeEvent = {"kind": "everything", "project": None, "department": None, "ids": None}


class PageQueue:
    """Queue of change events for one open page. Must be created in the event loop that serves the page."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.events: asyncio.Queue[ChangeEvent] = asyncio.Queue()

    def put(self, event: ChangeEvent) -> None:
        """Queue a change event. Safe to call from any thread."""
        try:
            self._loop.call_soon_threadsafe(self._enqueue, event)
        except RuntimeError:  # the event loop has stopped, and the page is closed
            return

    def _enqueue(self, event: ChangeEvent) -> None:
        if self.events.qsize() >= QUEUED_EVENTS_MAX:
            while not self.events.empty():
                self.events.get_nowait()
            event = EVERYTHING_CHANGED
        self.events.put_nowait(event)


class Listener:
    """Listener thread that runs while pages are open, and for some time after the last page closes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._queues: set[PageQueue] = set()
        self._thread: threading.Thread | None = None
        self._ready = threading.Event()
        self._history: deque[tuple[float, ChangeEvent]] = deque()
        self._complete_since = math.inf  # `_history` contains every event since this time
        self._last_used_at = 0.0

    def add(self, queue: PageQueue) -> threading.Event:
        """Add a page. The returned event is set when the thread is listening to the database."""
        with self._lock:
            self._queues.add(queue)
            self._last_used_at = time.monotonic()
            if self._thread is None:
                self._ready = threading.Event()
                self._thread = threading.Thread(target=self._listen, name="berth-live", daemon=True)
                self._thread.start()
            return self._ready

    def remove(self, queue: PageQueue) -> None:
        with self._lock:
            self._queues.discard(queue)

    def missed_events(self, since: float) -> list[ChangeEvent]:
        """Return the events since `since`, a timestamp from any web process.

        If this process has not been listening since then, return only EVERYTHING_CHANGED.
        """
        since -= CLOCK_SKEW_SECONDS
        with self._lock:
            if since <= self._complete_since:
                return [EVERYTHING_CHANGED]
            return [event for at, event in self._history if at >= since]

    def _listen(self) -> None:
        try:
            with Waiter(NAME) as waiter:
                with self._lock:
                    self._complete_since = time.time()
                self._ready.set()
                while self._continue_unless_idle():
                    for reason in sorted(waiter.wait(WAIT_SECONDS).reasons):
                        self._distribute(
                            EVERYTHING_CHANGED if reason == "reconnected" else json.loads(reason)
                        )
        finally:
            self._ready.set()
            connection.close()
            with self._lock:
                if self._thread is threading.current_thread():
                    self._thread = None
                    self._clear_history()

    def _continue_unless_idle(self) -> bool:
        with self._lock:
            now = time.monotonic()
            if self._queues:
                self._last_used_at = now
            if now - self._last_used_at <= IDLE_SECONDS:
                return True
            self._thread = None
            self._clear_history()
            return False

    def _clear_history(self) -> None:
        self._history.clear()
        self._complete_since = math.inf

    def _distribute(self, event: ChangeEvent) -> None:
        with self._lock:
            queues = list(self._queues)
            self._history.append((time.time(), event))
            if len(self._history) > EVENTS_KEPT:
                self._complete_since = self._history.popleft()[0]
        for queue in queues:
            queue.put(event)


LISTENER = Listener()
