"""Allocate ports on this machine for the rendezvous of gangs."""

from __future__ import annotations

import random
import socket
import time
from collections.abc import Iterator

HOST = "127.0.0.1"
# The range is below the ephemeral ports, so that no outgoing connection uses an allocated port.
FIRST_PORT, LAST_PORT = 20000, 32000
_RESERVED_SECONDS = 120.0


class PortAllocator:
    """Allocator of rendezvous ports.

    A port stays unbound until the rank-0 pod starts, so it is not allocated again for a while.
    """

    def __init__(self) -> None:
        self._reserved: dict[int, float] = {}

    def allocate(self) -> tuple[str, int]:
        now = time.monotonic()
        self._reserved = {port: at for port, at in self._reserved.items() if now - at < _RESERVED_SECONDS}
        for port in _ports():
            if port not in self._reserved and _is_free(port):
                self._reserved[port] = now
                return HOST, port
        raise OSError(f"no port between {FIRST_PORT} and {LAST_PORT} is free")


def _ports() -> Iterator[int]:
    first = random.randrange(FIRST_PORT, LAST_PORT)  # noqa: S311
    yield from range(first, LAST_PORT)
    yield from range(FIRST_PORT, first)


def _is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True
