"""Serve one channel on stdin and stdout, in a container without a shim.

The container's own Python runs this module.
"""

from __future__ import annotations

import os
import signal
import socket

from pools.runtimes.shim.channels.command import start_command
from pools.runtimes.shim.channels.forwarding import forward
from pools.runtimes.shim.channels.frames import BrokenFrames
from pools.runtimes.shim.channels.relay import Relay

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class _Container:
    """Stand-in for the pod, used if the relay already runs inside the container."""

    namespaces = None

    def __init__(self) -> None:
        self.env = dict(os.environ)
        self.order = {"working_dir": os.getcwd()}
        self.cgroups = self

    def join(self) -> None:
        """Do nothing, because the container's processes are already in its control groups."""


class _StubLibc:
    """Stub for the C library, whose calls would protect the shim. This container has no shim."""

    def prctl(self, *arguments: object) -> int:
        return 0


def serve() -> None:
    """Serve the channel until the connection or the command ends."""
    inner, outer = socket.socketpair()
    relay = os.fork()
    if relay == 0:
        outer.close()
        try:
            _relay(inner)
        finally:
            os._exit(1)
    inner.close()
    try:
        forward(outer, until_first_end=True)
    except OSError:  # the connection has ended
        pass
    outer.close()
    os.waitpid(relay, 0)
    os._exit(0)


def _relay(connection: socket.socket) -> None:
    null = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1):  # open standard streams would keep the connection open
        os.dup2(null, number)
    signals, wake = os.pipe()
    for fd in (signals, wake):
        os.set_blocking(fd, False)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    container: Any = _Container()
    libc: Any = _StubLibc()
    try:
        Relay(connection, signals).serve(lambda request: start_command(container, libc, request, ""))
    except (OSError, BrokenFrames):
        pass
    os._exit(0)
