"""Detect open connections of this process that are no longer permitted.

One thread queries the database twice a second. If the user, session or token of a connection has changed, the
connection is signaled and then checks its own permission.
"""

import asyncio
import logging
import threading
import time
from collections import Counter

from django.db import InterfaceError, OperationalError, connection

from projects.connections.credentials import Credential, load_states

log = logging.getLogger(__name__)

CHECK_SECONDS = 0.5
LINGER_SECONDS = 5.0  # seconds that the thread keeps running after the last connection has closed
UNCHECKED = object()


class Connection:
    """Watched connection: its credential, its user, and the event loop that serves it."""

    def __init__(self, credential: Credential, user: int | None) -> None:
        self.credential = credential
        self.user = user
        self.state: object = UNCHECKED
        self._loop = asyncio.get_running_loop()
        self._signalled = asyncio.Event()

    def signal(self) -> None:
        """Wake the task that waits on the connection. Safe to call from any thread."""
        try:
            self._loop.call_soon_threadsafe(self._signalled.set)
        except RuntimeError:  # the event loop has ended, which also ends the connection
            return

    async def wait_for_change(self, seconds: float | None = None) -> None:
        """Wait until the credential or the user's permissions change, or `seconds` have passed."""
        try:
            async with asyncio.timeout(seconds):
                await self._signalled.wait()
        except TimeoutError:
            return
        self._signalled.clear()


class ConnectionWatcher:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: set[Connection] = set()
        self._per_user: Counter[int] = Counter()
        self._thread: threading.Thread | None = None
        self._needed_at = 0.0

    def open(self, credential: Credential, user: int | None = None) -> Connection:
        """Watch a connection until `close` is called. The first check always signals it."""
        opened = Connection(credential, user)
        with self._lock:
            self._open.add(opened)
            if user is not None:
                self._per_user[user] += 1
            self._needed_at = time.monotonic()
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="berth-connections", daemon=True)
                self._thread.start()
        return opened

    def close(self, opened: Connection) -> None:
        with self._lock:
            if opened not in self._open:
                return
            self._open.discard(opened)
            if opened.user is not None:
                self._per_user[opened.user] -= 1
                if not self._per_user[opened.user]:
                    del self._per_user[opened.user]

    def count(self, user: int) -> int:
        """Return the number of connections that the user has open in this process."""
        with self._lock:
            return self._per_user[user]

    def _run(self) -> None:
        try:
            while self._continue_unless_idle():
                self._check_connections()
                time.sleep(CHECK_SECONDS)
        finally:
            with self._lock:
                if self._thread is threading.current_thread():
                    self._thread = None

    def _continue_unless_idle(self) -> bool:
        with self._lock:
            now = time.monotonic()
            if self._open:
                self._needed_at = now
            if now - self._needed_at > LINGER_SECONDS:
                self._thread = None
                return False
            return True

    def _check_connections(self) -> None:
        with self._lock:
            opened = list(self._open)
        if not opened:
            return
        try:
            states = load_states(watched.credential for watched in opened)
        # Permissions cannot be revoked while the database is down.
        except (OperationalError, InterfaceError) as error:
            log.info("could not check open connections: %s", error)
            return
        # The thread must survive any error. Without it, connections check their permissions much less often.
        except Exception:
            log.exception("could not check open connections")
            return
        finally:
            connection.close()
        for watched in opened:
            state = states[watched.credential]
            if state != watched.state:
                watched.state = state
                watched.signal()


WATCHER = ConnectionWatcher()
