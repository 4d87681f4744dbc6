"""Wake a loop in another process, or wait for a wake-up, a readable file or a timeout."""

import selectors
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import psycopg
from django.db import connection, transaction
from psycopg import sql

from berth.db.queries import prepared

RECONNECT_PAUSE_SECONDS = 0.25


def wake(name: str, reason: str = "") -> None:
    """Wake the loop `name` after the current transaction commits.

    If a crash loses the wake-up, the loop still runs at its next tick.
    """
    wake_with_reasons(name, [reason])


def wake_with_reasons(name: str, reasons: Sequence[str]) -> None:
    """Send several wake-up reasons to the loop in one query. See `wake`."""
    # Do not use a partial: Django logs the function's name if the notification fails, and a partial has none.
    transaction.on_commit(lambda: _notify(name, reasons), robust=True)


def _notify(name: str, reasons: Sequence[str]) -> None:
    prepared.execute(
        "SELECT pg_notify(%s, reason) FROM unnest(%s::text[]) AS reason", [_channel(name), list(reasons)]
    )


def _channel(name: str) -> str:
    return f"berth_{name}"


@dataclass(frozen=True)
class WakeResult:
    """Result of `wait`: the reasons that woke the process, and the readable files.

    Both are empty after a timeout.
    """

    reasons: frozenset[str] = frozenset()
    ready: frozenset[int] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.reasons or self.ready)


class Waiter:
    """Listener for wake-ups that reconnects when the database restarts.

    `wait` then returns "reconnected", because notifications may have been missed.
    """

    def __init__(self, name: str, files: Iterable[int] = ()) -> None:
        self.name = name
        self.files = tuple(files)
        self._connection: psycopg.Connection[Any] | None = None
        self._was_connected = False

    def __enter__(self) -> Self:
        self._connect()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self._disconnect()

    def wait(self, seconds: float) -> WakeResult:
        deadline = time.monotonic() + seconds
        while True:
            missed = self._was_connected and self._connection is None
            if self._connect() and missed:
                return WakeResult(frozenset({"reconnected"}), self._select(0)[1])
            left = max(0.0, deadline - time.monotonic())
            reasons = self._read_reasons()
            notified, ready = self._select(0 if reasons else left)
            reasons |= self._read_reasons() if notified else frozenset()
            if reasons or ready or time.monotonic() >= deadline:
                return WakeResult(reasons, ready)

    def _connect(self) -> bool:
        if self._connection is None:
            try:
                self._connection = _listen(self.name)
            except psycopg.OperationalError:
                return False
        self._was_connected = True
        return True

    def _select(self, seconds: float) -> tuple[bool, frozenset[int]]:
        """Return whether a notification arrived, and which files are readable."""
        with selectors.DefaultSelector() as selector:
            for file in self.files:
                selector.register(file, selectors.EVENT_READ)
            socket = None
            if self._connection is None:
                seconds = min(seconds, RECONNECT_PAUSE_SECONDS)
            else:
                socket = self._connection.fileno()
                selector.register(socket, selectors.EVENT_READ)
            ready = {key.fd for key, _ in selector.select(seconds)}
        return socket in ready, frozenset(ready - {socket})

    def _read_reasons(self) -> frozenset[str]:
        if self._connection is None:
            return frozenset()
        try:
            return frozenset(note.payload for note in self._connection.notifies(timeout=0))
        except psycopg.OperationalError:
            self._disconnect()
            return frozenset()

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _listen(name: str) -> psycopg.Connection[Any]:
    """Listen on a separate connection, because Django's belongs to one thread and may be in a transaction."""
    values = connection.get_connection_params()
    for key in ("cursor_factory", "context", "pool"):
        values.pop(key, None)
    listener = psycopg.connect(**{**values, "autocommit": True, "connect_timeout": 3})
    listener.execute(sql.SQL("LISTEN {}").format(sql.Identifier(_channel(name))))
    return listener
