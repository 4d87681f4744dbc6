"""Allocate rendezvous ports for gangs on this machine."""

from __future__ import annotations

import random
import socket
import time
from collections.abc import Iterator

HOST = "127.0.0.1"
# Below the ephemeral ports, so that no outgoing connection takes one in the meantime.
FIRST, LAST = 20000, 32000
_RESERVED_SECONDS = 120.0


class Rendezvous:
    """Allocator of ports.

    No socket reserves a port until rank 0 binds it, so no port is returned again for a while.
    """

    def __init__(self) -> None:
        self._reserved: dict[int, float] = {}

    def find(self) -> tuple[str, int]:
        now = time.monotonic()
        self._reserved = {port: at for port, at in self._reserved.items() if now - at < _RESERVED_SECONDS}
        for port in _ports():
            if port not in self._reserved and _is_free(port):
                self._reserved[port] = now
                return HOST, port
        raise OSError(f"no port between {FIRST} and {LAST} is free")


def _ports() -> Iterator[int]:
    first = random.randrange(FIRST, LAST)  # noqa: S311
    yield from range(first, LAST)
    yield from range(FIRST, first)


def _is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True
