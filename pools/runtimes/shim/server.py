"""Server process that forks a shim for each pod of one runtime, because starting Python takes longer than all
other steps of a pod's start.

The server receives only the directories of pods, so a shim inherits no secret of another pod.
"""

from __future__ import annotations

import _signal as signal  # type: ignore[import-not-found]
import _socket
import gc
import os
import select
import sys

from pools.runtimes.shim.enclosure.prepared import FILE
from pools.runtimes.shim.spare import run_as_spare, run_assigned_pod

TYPE_CHECKING = False  # avoids importing `typing`, which takes half as long as starting Python
if TYPE_CHECKING:
    from collections.abc import Callable

READY = b"ready"
NOT_FORKED = b"not-forked"
MESSAGE_BYTES = 65_536
SPARES = 4  # maximum number of spare shims, enough for the pods of most gangs and bursts
# Spare shims are prepared after a delay, because the preparation would slow down pod starts.
# SPARE_INTERVAL_MS is the pause between preparing one spare shim and the next.
SPARE_DELAY_MS, SPARE_INTERVAL_MS = 50, 10
_ASSIGNMENT_BYTES = select.PIPE_BUF  # longer messages are not written to a pipe atomically


def serve(fd: int, root: str) -> None:
    """Fork a shim for each request on the socket, and report each fork and exit status.

    A request consists of its number, the pod's directory and its anchor (the process whose exit stops the
    pod), joined by NUL. A report begins with the number. The exit status follows if the shim has exited, or
    NOT_FORKED if there was not enough memory to fork. `root` is the runtime's directory, where spare shims
    find the enclosure to prepare.
    """
    import ctypes  # noqa: F401 - for the shims, which would otherwise import these modules
    import resource  # noqa: F401
    import warnings  # noqa: F401

    server = Server(fd, root)
    gc.freeze()
    try:
        server.run()
    except (BrokenPipeError, ConnectionResetError):
        return


class Server:
    """Loop of the server process.

    `_requests` maps each running shim's process ID to its request's number. `_spares` maps each spare shim's
    process ID to its pipe, oldest first.
    """

    def __init__(self, fd: int, root: str) -> None:
        self._connection, self._root = _socket.socket(fileno=fd), root
        self._ended, self._writable = os.pipe()
        for end in (self._ended, self._writable):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(self._writable)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._requests: dict[int, bytes] = {}
        self._spares: dict[int, int] = {}
        self._enclosure: tuple[int, ...] = ()  # version of the record that the spare shims have read

    def run(self) -> None:
        """Handle requests until the runtime has exited."""
        poller = select.poll()
        for source in (self._connection.fileno(), self._ended):
            poller.register(source, select.POLLIN)
        self._connection.send(READY)
        pause, missing = SPARE_DELAY_MS, SPARES
        while True:
            ready = dict(poller.poll(pause if missing else None))
            if not ready:
                self._prepare_spare()
                pause, missing = SPARE_INTERVAL_MS, missing - 1
            if self._ended in ready:
                os.read(self._ended, 4096)
                self._report_ended_shims()
            if self._connection.fileno() in ready:
                if not self._handle_request():
                    return
                pause, missing = SPARE_DELAY_MS, SPARES - len(self._spares)

    def _handle_request(self) -> bool:
        """Provide a shim for one request. Return False if the runtime has exited."""
        message = self._connection.recv(MESSAGE_BYTES)
        if not message:
            return False
        number, _, pod = message.partition(b"\0")
        pid = self._assign_spare(pod) or self._fork(run_assigned_pod, pod)
        if pid:
            self._requests[pid] = number
        self._connection.send(number if pid else number + b" " + NOT_FORKED)
        return True

    def _prepare_spare(self) -> None:
        """Fork a spare shim if there is an enclosure to prepare and enough memory."""
        self._end_outdated_spares()
        if not self._enclosure:
            return
        # Use the key 0 until the process ID is known.
        # The new process closes every pipe in `_spares`, including its own.
        assignment, self._spares[0] = os.pipe()
        pid = self._fork(run_as_spare, assignment, self._root)
        os.close(assignment)
        writable = self._spares.pop(0)
        if pid:
            self._spares[pid] = writable
        else:
            os.close(writable)

    def _assign_spare(self, pod: bytes) -> int:
        """Assign the pod to a spare shim. Return the shim's process ID, or 0 if there is no spare shim."""
        if len(pod) > _ASSIGNMENT_BYTES:
            return 0
        self._end_outdated_spares()
        while self._spares:
            pid = next(iter(self._spares))
            try:
                os.write(self._spares[pid], pod)
            except BrokenPipeError:  # the spare shim has just been killed
                continue
            finally:
                os.close(self._spares.pop(pid))
            return pid
        return 0

    def _end_outdated_spares(self) -> None:
        try:
            status = os.stat(f"{self._root}/{FILE}")
        except FileNotFoundError:
            return
        current = (status.st_ino, status.st_mtime_ns)
        if current != self._enclosure:
            self._enclosure = current
            while self._spares:
                os.close(self._spares.popitem()[1])

    def _fork(self, run: Callable[..., None], *arguments: object) -> int:
        """Fork a process that calls `run`. Return its process ID, or 0 if there is not enough memory."""
        try:
            pid = os.fork()
        except OSError:
            return 0
        if pid == 0:
            files = [self._connection.fileno(), self._ended, self._writable, *self._spares.values()]
            _run_in_child(files, run, arguments)
        return pid

    def _report_ended_shims(self) -> None:
        while self._requests or self._spares:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            if pid in self._spares:
                os.close(self._spares.pop(pid))
            elif pid in self._requests:
                code = os.waitstatus_to_exitcode(status)
                self._connection.send(self._requests.pop(pid) + b" %d" % code)


def _run_in_child(own_files: list[int], run: Callable[..., None], arguments: tuple[object, ...]) -> None:
    """Close the server's files, reset its signal handlers, call `run` and exit."""
    status = 1
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for fd in own_files:
            os.close(fd)
        os.setsid()
        run(*arguments)
        status = 0
    except BaseException:  # the forked shim must never continue as a server, even after an unexpected error
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(status)
