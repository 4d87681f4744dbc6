"""Announce changes to all web processes with change events: a kind and IDs, without content.

After a pause, the first event is sent immediately, and the following ones together. A cycle that starts a
thousand workloads causes only a few notifications.
"""

import json
import logging
import threading
import time
import uuid
from collections.abc import Collection, Iterator
from functools import partial
from typing import Any

from django.db import InterfaceError, OperationalError, connection, transaction

from berth.db.loops.wake import wake_with_reasons

log = logging.getLogger(__name__)

NAME = "live"
GATHER_SECONDS = 0.1
IDLE_SECONDS = 5.0  # seconds without events after which the sending thread exits and closes its connection
IDS_MAX = 100  # IDs per notification, because PostgreSQL limits notifications to 8,000 bytes

EventScope = tuple[int | None, int | None]  # project ID and department ID


class Announcer:
    """Sender of change events.

    An event that follows a pause is sent immediately by the caller. While events keep arriving, a thread
    sends them on its own database connection.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._pending: dict[tuple[str, EventScope], set[str] | None] = {}
        self._sender: threading.Thread | None = None
        self._is_shut_down = False
        self._sent_at = -GATHER_SECONDS

    def announce(
        self,
        kind: str,
        *,
        project: int | None = None,
        department: int | None = None,
        object_ids: Collection[str] = (),
    ) -> None:
        """Announce a change to the given objects, or to all objects. Must be called after the commit."""
        with self._changed:
            if self._is_shut_down:
                return
            is_first = not self._pending
            ids = self._pending.setdefault((kind, (project, department)), set())
            if not object_ids:
                self._pending[(kind, (project, department))] = None
            elif ids is not None:
                ids.update(object_ids)
            # A forked process does not inherit the thread.
            if self._sender is not None and self._sender.is_alive():
                if is_first:
                    self._changed.notify_all()
                return
            if time.monotonic() - self._sent_at < GATHER_SECONDS:
                self._sender = threading.Thread(target=self._send_until_idle, name="announcer", daemon=True)
                self._sender.start()
                return
        self.send()

    def send(self) -> None:
        with self._changed:
            pending, self._pending = self._pending, {}
            self._sent_at = time.monotonic()
        events = [json.dumps(event, separators=(",", ":")) for event in build_change_events(pending)]
        if events:
            wake_with_reasons(NAME, events)

    def start(self) -> None:
        """Accept changes again after a shutdown."""
        with self._changed:
            self._is_shut_down = False

    def shut_down(self) -> None:
        """Discard pending and later change events, and wait until no thread is sending any."""
        with self._changed:
            self._is_shut_down, self._pending, sender = True, {}, self._sender
            self._changed.notify_all()
        if sender is not None:
            sender.join()

    def _send_until_idle(self) -> None:
        """Send change events until none arrive for a while.

        If the database is unavailable, log that and continue.
        """
        try:
            while self._wait_for_changes():
                try:
                    self.send()
                except (OperationalError, InterfaceError) as error:
                    log.info("could not announce a change: %s", error)
                    connection.close()
        finally:
            with self._changed:
                self._end_thread()

    def _wait_for_changes(self) -> bool:
        """Wait until events are due, and return True.

        Return False if the thread should end instead, because it is idle or shut down.
        """
        with self._changed:
            if self._changed.wait_for(lambda: self._pending or self._is_shut_down, IDLE_SECONDS):
                pause = self._sent_at + GATHER_SECONDS - time.monotonic()
                self._changed.wait_for(lambda: self._is_shut_down, max(0.0, pause))
            if not self._pending:
                self._end_thread()
            return bool(self._pending)

    def _end_thread(self) -> None:
        """Close this thread's database connection. Later events start a new thread."""
        connection.close()
        if self._sender is threading.current_thread():
            self._sender = None


def build_change_events(pending: dict[tuple[str, EventScope], set[str] | None]) -> Iterator[dict[str, Any]]:
    """Yield one change event for each kind of object and scope.

    An event without IDs refers to all objects of its kind.
    """
    for (kind, (project, department)), ids in sorted(pending.items(), key=str):
        listed_ids = sorted(ids) if ids is not None and len(ids) <= IDS_MAX else None
        yield {"kind": kind, "project": project, "department": department, "ids": listed_ids}


ANNOUNCER = Announcer()


def workloads_changed(
    sender: object,
    *,
    workload_ids: Collection[uuid.UUID],
    project_id: int,
    department_id: int,
    **more: object,
) -> None:
    ids = [str(pk) for pk in workload_ids]
    ANNOUNCER.announce("workload", project=project_id, department=department_id, object_ids=ids)


def tenants_changed(
    sender: object, *, department_id: int | None = None, project_id: int | None = None, **more: object
) -> None:
    ANNOUNCER.announce("tenants")


def pools_changed(sender: object, **more: object) -> None:
    """Announce a pool change to every user with a role, after the commit."""
    transaction.on_commit(partial(ANNOUNCER.announce, "pools"), robust=True)
