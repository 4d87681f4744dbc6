"""Check port sessions, with a short-lived cache, and limit concurrent requests per port."""

import hashlib
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from asgiref.sync import sync_to_async
from django.db import connection
from django.utils import timezone

from projects.services.workloads.ports import (
    InvalidPortSession,
    PortAddress,
    PortClosed,
    redeem_link,
    resolve_port_session,
)

CACHE_SECONDS = 1.0
T = TypeVar("T")
MAX_CACHED = 4096
MAX_CONCURRENT = 128  # maximum concurrent requests and sockets per port

Port = tuple[uuid.UUID, str]


@dataclass
class PortSessionCache:
    monotonic: Callable[[], float] = time.monotonic
    _cache: dict[tuple[str, Port], tuple[float, PortAddress]] = field(default_factory=dict)
    _active: dict[Port, int] = field(default_factory=dict)

    async def address(self, cookie: str, port: Port) -> PortAddress:
        """Return the pod address for a port session. Raises InvalidPortSession or PortClosed."""
        if not cookie:
            raise InvalidPortSession
        key = (hash_cookie(cookie), port)
        at, address = self._cache.get(key, (0.0, None))
        if address is not None and self.monotonic() - at < CACHE_SECONDS:
            return address
        self._cache.pop(key, None)
        address = await query_in_thread(lambda: resolve_port_session(cookie, *port, timezone.now()))
        if len(self._cache) >= MAX_CACHED:
            self._cache.clear()
        self._cache[key] = (self.monotonic(), address)
        return address

    async def is_valid(self, cookie: str, port: Port, address: PortAddress) -> bool:
        """Return whether an open connection may continue. Bypasses the cache."""
        self._cache.pop((hash_cookie(cookie), port), None)
        try:
            return await self.address(cookie, port) == address
        except (InvalidPortSession, PortClosed):
            return False

    async def exchange(self, secret: str, port: Port) -> str:
        """Exchange a link's secret for a port session's secret. Raises InvalidPortSession."""
        return await query_in_thread(lambda: redeem_link(secret, *port, timezone.now()))

    def enter(self, port: Port) -> bool:
        """Count a request to the port, or return False if the port has too many concurrent requests.

        If this returns True, the caller must call `leave` when the request ends.
        """
        if self._active.get(port, 0) >= MAX_CONCURRENT:
            return False
        self._active[port] = self._active.get(port, 0) + 1
        return True

    def leave(self, port: Port) -> None:
        self._active[port] -= 1
        if not self._active[port]:
            del self._active[port]


def hash_cookie(cookie: str) -> str:
    """Return the cookie's digest, which identifies the stored port session."""
    return hashlib.sha256(cookie.encode("latin-1")).hexdigest()


async def query_in_thread(query: Callable[[], T]) -> T:
    """Run a database query in a separate thread."""

    def run() -> T:
        try:
            return query()
        finally:
            connection.close()

    return await sync_to_async(run, thread_sensitive=False)()
