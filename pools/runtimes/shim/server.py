"""Server process that forks a shim for each pod of one runtime.

Starting Python takes longer than all other steps of starting a pod. This process has already started Python
and imported the shim's modules. The server receives only the directories of pods, never their specs or
secrets, so a forked shim inherits nothing from another pod. The runtime starts the server with no other open
files and an almost empty environment. The server ends with the runtime, but its shims continue.
"""

from __future__ import annotations

import _signal as signal  # type: ignore[import-not-found]
import _socket
import gc
import os
import select
import sys

from pools.runtimes.shim.main import main

TYPE_CHECKING = False  # avoids importing `typing`, which takes half as long as starting Python
if TYPE_CHECKING:
    from _socket import socket

READY = b"ready"
NOT_FORKED = b"not-forked"
MESSAGE_BYTES = 65_536


def serve(fd: int) -> None:
    """Fork a shim for each request on the socket. Report each fork and each shim's exit status.

    A request consists of its number, the pod's directory and the anchor, joined by NUL. A report consists of
    the number and, if the shim has ended, its exit status, or NOT_FORKED if there was not enough memory.
    """
    import ctypes  # noqa: F401 - for the shims, which would otherwise import these modules
    import resource  # noqa: F401
    import warnings  # noqa: F401

    connection = _socket.socket(fileno=fd)
    ended, writable = os.pipe()
    for end in (ended, writable):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(writable)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    gc.freeze()
    requests: dict[int, bytes] = {}  # request numbers of running shims by process ID
    poller = select.poll()
    for source in (fd, ended):
        poller.register(source, select.POLLIN)
    try:
        connection.send(READY)
        while True:
            ready = dict(poller.poll())
            if ended in ready:
                os.read(ended, 4096)
                _report_ended_shims(connection, requests)
            if fd in ready and not _handle_request(connection, requests, (ended, writable)):
                return
    except (BrokenPipeError, ConnectionResetError):
        return


def _handle_request(connection: socket, requests: dict[int, bytes], pipe: tuple[int, int]) -> bool:
    """Fork a shim for one request. Return False if the runtime has ended."""
    message = connection.recv(MESSAGE_BYTES)
    if not message:
        return False
    number, directory, anchor = message.split(b"\0")
    try:
        pid = os.fork()
    except OSError:
        connection.send(number + b" " + NOT_FORKED)
        return True
    if pid == 0:
        _become_shim(os.fsdecode(directory), os.fsdecode(anchor), (connection.fileno(), *pipe))
    requests[pid] = number
    connection.send(number)
    return True


def _report_ended_shims(connection: socket, requests: dict[int, bytes]) -> None:
    while requests:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        code = os.waitstatus_to_exitcode(status)
        connection.send(requests.pop(pid) + b" %d" % code)


def _become_shim(directory: str, anchor: str, own_files: tuple[int, ...]) -> None:
    """Run the shim in this forked process without the server's files and signal handlers, and exit."""
    status = 1
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for fd in own_files:
            os.close(fd)
        os.setsid()
        errors = os.open(f"{directory}/shim.err", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(errors, 1)
        os.dup2(errors, 2)
        os.close(errors)
        main(directory, anchor)
        status = 0
    except BaseException:  # the forked shim must never continue as a server, even after an unexpected error
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(status)
