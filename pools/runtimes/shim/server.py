"""Server process that forks a shim for each pod of one runtime.

Starting Python takes longer than all other steps of starting a pod. This process has already started Python
and imported the shim's modules. While no pods are being started, it also keeps a spare shim, which has
already built most of its pod's enclosure. The server receives only the directories of pods, never their specs
or secrets, so a shim inherits nothing from another pod. The runtime starts the server with no other open
files and an almost empty environment. The server ends with the runtime, but its shims continue.
"""

from __future__ import annotations

import _signal as signal  # type: ignore[import-not-found]
import _socket
import gc
import os
import select
import sys

from pools.runtimes.shim.spare import become_spare, run_assigned_pod

TYPE_CHECKING = False  # avoids importing `typing`, which takes half as long as starting Python
if TYPE_CHECKING:
    from collections.abc import Callable

READY = b"ready"
NOT_FORKED = b"not-forked"
MESSAGE_BYTES = 65_536
# Time from the last start of a pod to the preparation of a spare shim, which would slow the start down.
SPARE_DELAY_MS = 50
_ASSIGNMENT_BYTES = select.PIPE_BUF  # longer messages are not written to a pipe at once


def serve(fd: int, root: str) -> None:
    """Fork a shim for each request on the socket. Report each fork and each shim's exit status.

    A request consists of its number, the pod's directory and the anchor, joined by NUL. A report consists of
    the number and, if the shim has ended, its exit status, or NOT_FORKED if there was not enough memory.
    `root` is the runtime's directory, in which the spare shim finds the enclosure to prepare.
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
    """Loop of the server process. `_requests` are the numbers of the requests of running shims by process ID.

    `_spare` is the process ID of the spare shim, or 0. The spare shim learns its pod from the pipe
    `_assignment`, and ends with the server.
    """

    def __init__(self, fd: int, root: str) -> None:
        self._connection, self._root = _socket.socket(fileno=fd), root
        self._ended, self._writable = os.pipe()
        for end in (self._ended, self._writable):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(self._writable)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._requests: dict[int, bytes] = {}
        self._spare, self._assignment = 0, -1

    def run(self) -> None:
        """Handle requests until the runtime has ended."""
        poller = select.poll()
        for source in (self._connection.fileno(), self._ended):
            poller.register(source, select.POLLIN)
        self._connection.send(READY)
        is_spare_due = True
        while True:
            ready = dict(poller.poll(SPARE_DELAY_MS if is_spare_due else None))
            if not ready:
                self._prepare_spare()
                is_spare_due = False
            if self._ended in ready:
                os.read(self._ended, 4096)
                self._report_ended_shims()
            if self._connection.fileno() in ready:
                if not self._handle_request():
                    return
                is_spare_due = True

    def _handle_request(self) -> bool:
        """Provide a shim for one request. Return False if the runtime has ended."""
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
        """Fork a spare shim, unless one is ready."""
        if self._spare:
            return
        assignment, self._assignment = os.pipe()
        self._spare = self._fork(become_spare, assignment, self._root)
        os.close(assignment)
        if not self._spare:
            self._close_assignment()

    def _assign_spare(self, pod: bytes) -> int:
        """Assign the pod to the spare shim. Return the process ID of the shim, or 0 if there is none."""
        if not self._spare or len(pod) > _ASSIGNMENT_BYTES:
            return 0
        pid, self._spare = self._spare, 0
        try:
            os.write(self._assignment, pod)
        except BrokenPipeError:  # it has just been killed
            pid = 0
        self._close_assignment()
        return pid

    def _close_assignment(self) -> None:
        os.close(self._assignment)
        self._assignment = -1

    def _fork(self, run: Callable[..., None], *arguments: object) -> int:
        """Return the process ID of a new process that calls `run`, or 0 if there is not enough memory."""
        try:
            pid = os.fork()
        except OSError:
            return 0
        if pid == 0:
            own = (self._connection.fileno(), self._ended, self._writable, self._assignment)
            _run_in_child([fd for fd in own if fd >= 0], run, arguments)
        return pid

    def _report_ended_shims(self) -> None:
        while self._requests or self._spare:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            if pid == self._spare:
                self._spare = 0
                self._close_assignment()
            elif pid in self._requests:
                code = os.waitstatus_to_exitcode(status)
                self._connection.send(self._requests.pop(pid) + b" %d" % code)


def _run_in_child(own_files: list[int], run: Callable[..., None], arguments: tuple[object, ...]) -> None:
    """Call `run` in this forked process without the server's files and signal handlers, and exit."""
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
