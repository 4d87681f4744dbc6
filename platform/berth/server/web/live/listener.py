"""Thread of a web process that passes change notes on to open pages."""

import asyncio
import json
import math
import threading
import time
from collections import deque
from typing import Any

from django.db import connection

from berth.db.wake import Waiter
from berth.server.web.live.announcer import NAME

Note = dict[str, Any]
PATIENCE_SECONDS = 5.0
LINGERS_SECONDS = 60.0  # seconds without an open page before the thread ends
REMEMBERED = 1000  # number of notes kept for pages that were rendered before they listened
CLOCKS_APART_SECONDS = 0.2  # maximum clock difference between two web processes
MOST_WAITING = 1000  # maximum notes per page; a page that reads too slowly is sent EVERYTHING instead
EVERYTHING: Note = {"kind": "everything", "project": None, "department": None, "ids": None}


class PageQueue:
    """Queue of notes for one open page, in the event loop that serves the page."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.notes: asyncio.Queue[Note] = asyncio.Queue()

    def put(self, note: Note) -> None:
        """Add a note. Safe to call from any thread."""
        try:
            self._loop.call_soon_threadsafe(self._keep, note)
        except RuntimeError:  # the event loop has closed, and the page with it
            return

    def _keep(self, note: Note) -> None:
        if self.notes.qsize() >= MOST_WAITING:
            while not self.notes.empty():
                self.notes.get_nowait()
            note = EVERYTHING
        self.notes.put_nowait(note)


class Listener:
    """Listening thread that runs while pages are open, and ends some time after the last page closes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._queues: set[PageQueue] = set()
        self._thread: threading.Thread | None = None
        self._ready = threading.Event()
        self._past: deque[tuple[float, Note]] = deque()
        self._complete_since = math.inf  # `_past` has every note since this time
        self._wanted_at = 0.0

    def add(self, queue: PageQueue) -> threading.Event:
        """Add a page. The returned event is set once the thread listens to the database."""
        with self._lock:
            self._queues.add(queue)
            self._wanted_at = time.monotonic()
            if self._thread is None:
                self._ready = threading.Event()
                self._thread = threading.Thread(target=self._listen, name="berth-live", daemon=True)
                self._thread.start()
            return self._ready

    def remove(self, queue: PageQueue) -> None:
        with self._lock:
            self._queues.discard(queue)

    def missed(self, since: float) -> list[Note]:
        """Return the notes since a time on any web process's clock.

        If this process has not been listening since then, return a note that everything may have changed.
        """
        since -= CLOCKS_APART_SECONDS
        with self._lock:
            if since <= self._complete_since:
                return [EVERYTHING]
            return [note for at, note in self._past if at >= since]

    def _listen(self) -> None:
        try:
            with Waiter(NAME) as waiter:
                with self._lock:
                    self._complete_since = time.time()
                self._ready.set()
                while self._should_run():
                    for reason in sorted(waiter.wait(PATIENCE_SECONDS).reasons):
                        self._distribute(EVERYTHING if reason == "reconnected" else json.loads(reason))
        finally:
            self._ready.set()
            connection.close()
            with self._lock:
                if self._thread is threading.current_thread():
                    self._thread = None
                    self._forget()

    def _should_run(self) -> bool:
        with self._lock:
            now = time.monotonic()
            if self._queues:
                self._wanted_at = now
            if now - self._wanted_at <= LINGERS_SECONDS:
                return True
            self._thread = None
            self._forget()
            return False

    def _forget(self) -> None:
        self._past.clear()
        self._complete_since = math.inf

    def _distribute(self, note: Note) -> None:
        with self._lock:
            queues = list(self._queues)
            self._past.append((time.time(), note))
            if len(self._past) > REMEMBERED:
                self._complete_since = self._past.popleft()[0]
        for queue in queues:
            queue.put(note)


LISTENER = Listener()
