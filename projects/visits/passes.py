"""Cache valid visits for a few seconds."""

import hashlib
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from asgiref.sync import sync_to_async
from django.db import connection
from django.utils import timezone

from projects.services.workloads.ports import NotThere, NoVisit, Place, use_link, visited

COUNTS_FOR = 1.0  # seconds
T = TypeVar("T")
MOST_KEPT = 4096
AT_ONCE = 128  # requests and sockets of one port

Port = tuple[uuid.UUID, str]


@dataclass
class Passes:
    monotonic: Callable[[], float] = time.monotonic
    _kept: dict[tuple[str, Port], tuple[float, Place]] = field(default_factory=dict)
    _inside: dict[Port, int] = field(default_factory=dict)

    async def place(self, cookie: str, port: Port) -> Place:
        """Raises NoVisit, NotThere."""
        if not cookie:
            raise NoVisit
        key = (digest_of(cookie), port)
        at, place = self._kept.get(key, (0.0, None))
        if place is not None and self.monotonic() - at < COUNTS_FOR:
            return place
        self._kept.pop(key, None)
        place = await _in_a_thread(lambda: visited(cookie, *port, timezone.now()))
        if len(self._kept) >= MOST_KEPT:
            self._kept.clear()
        self._kept[key] = (self.monotonic(), place)
        return place

    async def still(self, cookie: str, port: Port, place: Place) -> bool:
        """Whether a connection that was let in may go on, asked of the rows themselves."""
        self._kept.pop((digest_of(cookie), port), None)
        try:
            return await self.place(cookie, port) == place
        except (NoVisit, NotThere):
            return False

    async def exchange(self, secret: str, port: Port) -> str:
        """Raises NoVisit."""
        return await _in_a_thread(lambda: use_link(secret, *port, timezone.now()))

    def enter(self, port: Port) -> bool:
        """False when too many are inside; otherwise `leave` must follow."""
        if self._inside.get(port, 0) >= AT_ONCE:
            return False
        self._inside[port] = self._inside.get(port, 0) + 1
        return True

    def leave(self, port: Port) -> None:
        self._inside[port] -= 1
        if not self._inside[port]:
            del self._inside[port]


def digest_of(cookie: str) -> str:
    """As the rows of visits hold it."""
    return hashlib.sha256(cookie.encode("latin-1")).hexdigest()


async def _in_a_thread(ask: Callable[[], T]) -> T:
    def asking() -> T:
        try:
            return ask()
        finally:
            connection.close()

    return await sync_to_async(asking, thread_sensitive=False)()
