"""Start processes as forks of the preloaded process, whose memory they share.

Forked processes become children of the supervisor and survive a restart of the preloaded process.
"""

import os
import select
import signal
import socket
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from typing import BinaryIO

from berth.server.up.errors import StartupError

MESSAGE_MAX = 64
READY = b"ready"
START_SECONDS = 20.0  # long enough to restart the preloaded process


@dataclass
class ForkedProcess:
    """Child process that another process forked, with some of `subprocess.Popen`'s methods."""

    pid: int
    returncode: int | None = None

    def poll(self) -> int | None:
        """Return the exit code, which is negative after a signal, or None while the process runs."""
        if self.returncode is None:
            try:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
            except ChildProcessError:  # the process has already been reaped as an orphan
                self.returncode = 1
            else:
                self.returncode = os.waitstatus_to_exitcode(status) if pid else None
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class Forks:
    """Supervisor's end of the socket to the preloaded process.

    The supervisor keeps both ends open, so that requests wait while the preloaded process restarts.
    """

    def __init__(self) -> None:
        self._requests, self.inherited = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)

    def wait_until_loaded(self, process: subprocess.Popen[bytes]) -> None:
        """Wait until the preloaded process can fork. Raises StartupError if it exits instead."""
        while not select.select([self._requests], [], [], 0.1)[0]:
            if process.poll() is not None:
                raise StartupError("Berth could not be loaded.")
        self._requests.recv(MESSAGE_MAX)

    def launcher(self, name: str, *sockets: socket.socket) -> Callable[[BinaryIO], ForkedProcess]:
        """Return a function that forks a process with a log file. See `fork`."""
        return lambda log: self.fork(name, log, sockets)

    def fork(self, name: str, log: BinaryIO, sockets: tuple[socket.socket, ...] = ()) -> ForkedProcess:
        """Start a process that writes to the log and uses the sockets.

        `name` is a program such as `web`, optionally with a number, as in `web-2`. The new process exits if
        its ID does not reach this process. Raises OSError if the process does not start.
        """
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with ours, theirs:
            files = [theirs.fileno(), log.fileno(), *(each.fileno() for each in sockets)]
            socket.send_fds(self._requests, [name.encode()], files)
            theirs.close()
            ours.settimeout(START_SECONDS)
            pid = ours.recv(MESSAGE_MAX)
            if not pid:
                raise ConnectionError(f"The process {name} exited during startup. See its log.")
            ours.send(READY)
        return ForkedProcess(int(pid))
