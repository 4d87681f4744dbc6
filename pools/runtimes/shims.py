"""Start shims by forking them from a server process or, if that fails, as separate processes."""

from __future__ import annotations

import os
import select
import socket
import subprocess
import sys
import threading
import time
import weakref
from pathlib import Path
from typing import Protocol

from pools.runtimes.shim.server import MESSAGE_BYTES, NOT_FORKED, READY

SHIM_CODE = """import sys
sys.path.append(sys.argv[1])
from pools.runtimes.shim.main import main
main(sys.argv[2], sys.argv[3])"""
SERVER_CODE = """import sys
sys.path.append(sys.argv[1])
from pools.runtimes.shim.server import serve
serve(int(sys.argv[2]), sys.argv[3])"""
SHIM_ENV = {name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ}
SOURCE_ROOT = str(Path(__file__).resolve().parents[2])
ANSWER_SECONDS = 20.0  # a shim server that does not respond for this long has failed
END_SECONDS = 2.0


class Shim(Protocol):
    """Shim that has been started. `returncode` is its exit status, or None while it runs."""

    returncode: int | None

    def poll(self) -> int | None:
        """Return the exit status, or None while the shim runs."""


class ForkedShim:
    """Shim forked by the server.

    If the server or the fork fails, `returncode` is 0, and the lock on the pod's directory shows whether the
    shim is running.
    """

    def __init__(self, server: ShimServer, directory: str) -> None:
        self._server, self.directory = server, directory
        self._requested_at = time.monotonic()
        self.is_forked = False
        self.returncode: int | None = None

    def poll(self) -> int | None:
        self._server.receive_reports()
        if not self.is_forked and time.monotonic() - self._requested_at > ANSWER_SECONDS:
            self._server.end()
        return self.returncode


class ShimStarter:
    """Launcher of one runtime's shims. `root` is the runtime's directory."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._server: ShimServer | None = None
        self._lock = threading.Lock()

    def start(self, directory: Path, anchor: str) -> Shim:
        """Start the shim for the pod in the directory. Raises OSError.

        After a failed fork, the pod's next start uses a separate process, which reveals the error.
        """
        with self._lock:
            if self._server is not None and self._server.has_failed_to_fork(str(directory)):
                return _spawn(directory, anchor)
            # Try again with a new server, because the first one may have been killed.
            return self._fork(directory, anchor) or self._fork(directory, anchor) or _spawn(directory, anchor)

    def _fork(self, directory: Path, anchor: str) -> ForkedShim | None:
        """Fork a shim, after starting the server if necessary. Return None on failure."""
        try:
            if self._server is None:
                self._server = ShimServer(self._root)
                # End the server explicitly, because it stays alive in a reference cycle with its shims.
                weakref.finalize(self, self._server.end_process)
            return self._server.fork(str(directory), anchor)
        except (OSError, ServerFailed):
            self.stop_server()
            return None

    @property
    def server_pid(self) -> int | None:
        """Process ID of the server, or None if it is not running."""
        return self._server.process.pid if self._server else None

    def stop_server(self) -> None:
        if self._server is not None:
            self._server.end()
            self._server = None


class ServerFailed(Exception):
    pass


class ShimServer:
    """Connection to a server process, which lives as long as this object.

    Raises OSError or ServerFailed if the process does not start.
    """

    def __init__(self, root: Path) -> None:
        self._socket, server_socket = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.setblocking(False)
        self._running: dict[int, ForkedShim] = {}
        self._not_forked: set[str] = set()
        self._number = 0
        with server_socket:
            self.process = subprocess.Popen(
                [
                    sys.executable,
                    "-I",
                    "-S",
                    "-c",
                    SERVER_CODE,
                    SOURCE_ROOT,
                    str(server_socket.fileno()),
                    str(root),
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                env=SHIM_ENV,
                start_new_session=True,
                pass_fds=[server_socket.fileno()],
            )
        self.end_process = weakref.finalize(self, _end, self._socket, self.process)
        self._wait(select.POLLIN)
        if self._receive() != READY:
            self.end()
            raise ServerFailed("the shim server did not start")

    def fork(self, directory: str, anchor: str) -> ForkedShim:
        """Request a forked shim from the server. Raises OSError or ServerFailed."""
        self.receive_reports()
        self._number += 1
        message = b"\0".join((b"%d" % self._number, os.fsencode(directory), os.fsencode(anchor)))
        while True:
            try:
                self._socket.send(message)
                break
            except BlockingIOError:  # the server may be blocked until its reports are received
                self._wait(select.POLLIN | select.POLLOUT)
                self.receive_reports()
        shim = self._running[self._number] = ForkedShim(self, directory)
        return shim

    def has_failed_to_fork(self, directory: str) -> bool:
        """Return whether the last fork for the directory failed, and clear the failure."""
        self.receive_reports()
        has_failed = directory in self._not_forked
        self._not_forked.discard(directory)
        return has_failed

    def receive_reports(self) -> None:
        """Read the available reports about forked and exited shims, without waiting."""
        while (report := self._receive()) is not None:
            if not report:
                self._forget_running_shims()
                return
            number, *status = report.split()
            shim = self._running[int(number)]
            shim.is_forked = status != [NOT_FORKED]
            if not shim.is_forked:
                self._not_forked.add(shim.directory)
            if status:
                shim.returncode = int(status[0]) if shim.is_forked else 0
                del self._running[int(number)]

    def end(self) -> None:
        """Stop the server. The shims that it forked keep running."""
        self.end_process()
        self._forget_running_shims()

    def _forget_running_shims(self) -> None:
        for shim in self._running.values():
            shim.returncode = 0
        self._running.clear()

    def _receive(self) -> bytes | None:
        """Return the next message, b"" if the server has exited, or None if there is no message."""
        try:
            return self._socket.recv(MESSAGE_BYTES)
        except BlockingIOError:
            return None
        except OSError:
            return b""

    def _wait(self, events: int) -> None:
        """Wait until the socket is ready. Raises ServerFailed on a timeout."""
        poller = select.poll()
        poller.register(self._socket, events)
        if not poller.poll(ANSWER_SECONDS * 1000):
            self.end()
            raise ServerFailed("the shim server is not responding")


def _end(connection: socket.socket, process: subprocess.Popen[bytes]) -> None:
    connection.close()
    try:
        process.wait(END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _spawn(directory: Path, anchor: str) -> subprocess.Popen[bytes]:
    with (directory / "shim.err").open("ab") as errors:
        return subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", SHIM_CODE, SOURCE_ROOT, str(directory), anchor],
            stdin=subprocess.DEVNULL,
            stdout=errors,
            stderr=errors,
            cwd="/",
            env=SHIM_ENV,
            start_new_session=True,
        )
