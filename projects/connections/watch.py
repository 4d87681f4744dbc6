"""Notice, once for all open connections of a process, which of them have lost their right.

One thread asks the database twice a second while there are connections: a session that was signed out,
deleted or has expired, a token that was revoked or has expired, an account that was closed, a changed
password and a changed role are all seen, whoever changed them and by whatever means. A connection whose
state differs is rung, and then looks for itself whether it may go on.
"""

import asyncio
import logging
import threading
import time
from collections import Counter

from django.db import InterfaceError, OperationalError, connection

from projects.connections.credentials import Credential, states

log = logging.getLogger(__name__)

LOOK_SECONDS = 0.5
LINGER_SECONDS = 5.0  # between one connection and the next
NOT_SEEN = object()


class Connection:
    """One open socket or stream, in the loop that serves it."""

    def __init__(self, credential: Credential, person: int | None) -> None:
        self.credential = credential
        self.person = person
        self.state: object = NOT_SEEN
        self._loop = asyncio.get_running_loop()
        self._rung = asyncio.Event()

    def ring(self) -> None:
        """Callable from any thread."""
        try:
            self._loop.call_soon_threadsafe(self._rung.set)
        except RuntimeError:  # the loop has ended, and the connection with it
            return

    async def changed(self, seconds: float | None = None) -> None:
        """Return when the credential or the person's rights have changed, or the seconds are over."""
        try:
            async with asyncio.timeout(seconds):
                await self._rung.wait()
        except TimeoutError:
            return
        self._rung.clear()


class Watch:
    """The open connections of this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: set[Connection] = set()
        self._people: Counter[int] = Counter()
        self._thread: threading.Thread | None = None
        self._wanted_at = 0.0

    def open(self, credential: Credential, person: int | None = None) -> Connection:
        """Watch one more connection until `close`. Its first ring comes with the first look at it."""
        opened = Connection(credential, person)
        with self._lock:
            self._open.add(opened)
            if person is not None:
                self._people[person] += 1
            self._wanted_at = time.monotonic()
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="berth-connections", daemon=True)
                self._thread.start()
        return opened

    def close(self, opened: Connection) -> None:
        with self._lock:
            if opened not in self._open:
                return
            self._open.discard(opened)
            if opened.person is not None:
                self._people[opened.person] -= 1
                if not self._people[opened.person]:
                    del self._people[opened.person]

    def count(self, person: int) -> int:
        """How many connections the person has open in this process."""
        with self._lock:
            return self._people[person]

    def _run(self) -> None:
        try:
            while self._is_wanted():
                self._look()
                time.sleep(LOOK_SECONDS)
        finally:
            with self._lock:
                if self._thread is threading.current_thread():
                    self._thread = None

    def _is_wanted(self) -> bool:
        with self._lock:
            now = time.monotonic()
            if self._open:
                self._wanted_at = now
            if now - self._wanted_at > LINGER_SECONDS:
                self._thread = None
                return False
            return True

    def _look(self) -> None:
        with self._lock:
            opened = list(self._open)
        if not opened:
            return
        try:
            now = states(each.credential for each in opened)
        except (OperationalError, InterfaceError) as error:  # nobody can revoke anything meanwhile
            log.info("open connections could not be checked: %s", error)
            return
        except Exception:  # without this thread, only the slower check of each connection would be left
            log.exception("open connections could not be checked")
            return
        finally:
            connection.close()
        for each in opened:
            state = now[each.credential]
            if state != each.state:
                each.state = state
                each.ring()


WATCH = Watch()
