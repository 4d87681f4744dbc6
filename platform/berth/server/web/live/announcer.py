"""Announce changes to all web processes as notes. A note has a kind and IDs, but no content.

The first note after a pause is sent immediately, and notes that follow shortly afterwards are sent together.
A cycle that starts a thousand workloads therefore causes only a few notifications.
"""

import json
import logging
import threading
import time
import uuid
from collections.abc import Iterator
from functools import partial
from typing import Any, cast

from django.db import InterfaceError, OperationalError, connection, transaction

from berth.db.wake import wake_for_all

log = logging.getLogger(__name__)

NAME = "live"
GATHER_SECONDS = 0.1
IDS_MAX = 100  # IDs per notification: PostgreSQL limits its payload to 8,000 bytes

NoteScope = tuple[int | None, int | None]  # (project ID, department ID)


class Announcer:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pending: dict[tuple[str, NoteScope], set[str] | None] = {}
        self._timer: threading.Timer | None = None  # the timer that will send the next notes
        self._running: set[threading.Timer] = set()  # that timer and earlier ones that are still sending
        self._is_shut_down = False
        self._sent_at = -GATHER_SECONDS

    def announce(
        self, kind: str, *, project: int | None = None, department: int | None = None, object_id: str = ""
    ) -> None:
        """Announce a change. Call this after the commit."""
        with self._lock:
            if self._is_shut_down:
                return
            ids = self._pending.setdefault((kind, (project, department)), set())
            if ids is not None and object_id:
                ids.add(object_id)
            elif not object_id:
                self._pending[(kind, (project, department))] = None
            if self._timer is not None:
                return
            if time.monotonic() - self._sent_at < GATHER_SECONDS:
                self._timer = threading.Timer(GATHER_SECONDS, self._send_later)
                self._timer.daemon = True
                self._running.add(self._timer)
                self._timer.start()
                return
        self.send()

    def send(self) -> None:
        with self._lock:
            pending, self._pending, self._timer = self._pending, {}, None
            self._sent_at = time.monotonic()
        notes = [json.dumps(note, separators=(",", ":")) for note in build_notes(pending)]
        if notes:
            wake_for_all(NAME, notes)

    def start(self) -> None:
        """Accept changes again after a shutdown."""
        with self._lock:
            self._is_shut_down = False

    def shut_down(self) -> None:
        """Discard pending and later notes, and wait until no thread sends notes."""
        with self._lock:
            self._is_shut_down = True
            self._timer, self._pending = None, {}
            running, self._running = self._running, set()
        for timer in running:
            timer.cancel()
            timer.join()

    def _send_later(self) -> None:
        """Send from the timer thread, over its own connection. The database may be unavailable by now."""
        try:
            self.send()
        except (OperationalError, InterfaceError) as error:
            log.info("could not announce a change: %s", error)
        finally:
            connection.close()
            with self._lock:
                self._running.discard(cast("threading.Timer", threading.current_thread()))


def build_notes(pending: dict[tuple[str, NoteScope], set[str] | None]) -> Iterator[dict[str, Any]]:
    """Yield one note per kind and scope. A note without IDs stands for all objects of its kind."""
    for (kind, (project, department)), ids in sorted(pending.items(), key=str):
        listed_ids = sorted(ids) if ids is not None and len(ids) <= IDS_MAX else None
        yield {"kind": kind, "project": project, "department": department, "ids": listed_ids}


ANNOUNCER = Announcer()


def workload_changed(
    sender: object, *, workload_id: uuid.UUID, project_id: int, department_id: int, **more: object
) -> None:
    ANNOUNCER.announce("workload", project=project_id, department=department_id, object_id=str(workload_id))


def tenants_changed(
    sender: object, *, department_id: int | None = None, project_id: int | None = None, **more: object
) -> None:
    ANNOUNCER.announce("tenants")


def pools_changed(sender: object, **more: object) -> None:
    """Announce a pool change to every user with a role, after the commit."""
    transaction.on_commit(partial(ANNOUNCER.announce, "pools"), robust=True)
