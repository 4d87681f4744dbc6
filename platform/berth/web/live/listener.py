"""Here one thread of a web process hears the notes and hands each to the open pages of this process."""

import asyncio
import json
import threading
from typing import Any

from django.db import connection

from berth.db.wake import Waiter
from berth.web.live.announcer import NAME

Note = dict[str, Any]
PATIENCE_SECONDS = 5.0
MOST_WAITING = 1000  # of one page that reads too slowly; it then learns that everything may have changed
EVERYTHING: Note = {"kind": "everything", "project": None, "department": None, "ids": None}


class Ear:
    """What one open page hears: a queue in the loop that serves it."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.heard: asyncio.Queue[Note] = asyncio.Queue()

    def hear(self, note: Note) -> None:
        """From any thread."""
        try:
            self._loop.call_soon_threadsafe(self._keep, note)
        except RuntimeError:  # the loop has ended, and with it the page
            return

    def _keep(self, note: Note) -> None:
        if self.heard.qsize() >= MOST_WAITING:
            while not self.heard.empty():
                self.heard.get_nowait()
            note = EVERYTHING
        self.heard.put_nowait(note)


class Listener:
    """Runs while somebody listens; ends by itself when nobody has for a while."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ears: set[Ear] = set()
        self._thread: threading.Thread | None = None
        self._ready = threading.Event()

    def add(self, ear: Ear) -> threading.Event:
        """The event is set once the database's notes are heard."""
        with self._lock:
            self._ears.add(ear)
            if self._thread is None:
                self._ready = threading.Event()
                self._thread = threading.Thread(target=self._listen, name="berth-live", daemon=True)
                self._thread.start()
            return self._ready

    def remove(self, ear: Ear) -> None:
        with self._lock:
            self._ears.discard(ear)

    def _listen(self) -> None:
        try:
            with Waiter(NAME) as waiter:
                self._ready.set()
                while self._wanted():
                    for reason in sorted(waiter.wait(PATIENCE_SECONDS).reasons):
                        self._hand_on(EVERYTHING if reason == "reconnected" else json.loads(reason))
        finally:
            self._ready.set()
            connection.close()
            with self._lock:
                if self._thread is threading.current_thread():
                    self._thread = None

    def _wanted(self) -> bool:
        with self._lock:
            if not self._ears:
                self._thread = None
            return bool(self._ears)

    def _hand_on(self, note: Note) -> None:
        with self._lock:
            ears = list(self._ears)
        for ear in ears:
            ear.hear(note)


LISTENER = Listener()
