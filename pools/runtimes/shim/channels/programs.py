"""Berth's own programs for channels: copying files, forwarding ports, and SFTP.

They are loaded before the process enters the pod, which may not have Python's files.
"""

from __future__ import annotations

import os
import signal

from pools.runtimes.shim.channels.archive import BLOCK, CopyError
from pools.runtimes.shim.channels.forwarding import NotListening, connect, forward, resolve_port
from pools.runtimes.shim.channels.packing import Packer
from pools.runtimes.shim.channels.unpacking import Unpacker
from pools.runtimes.shim.entry import OPEN_FILES_SOFT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

COPY_TO, COPY_FROM, CONNECT, SSH, SFTP = "copy_to", "copy_from", "connect", "ssh", "sftp"
KINDS = (COPY_TO, COPY_FROM, CONNECT, SSH, SFTP)


def find_program(request: dict[str, object], env: Mapping[str, str], mark: str) -> Callable[[], int]:
    """Return the function that runs the requested program. Raises ValueError or TypeError.

    `mark` is the channel's ID.
    """
    kinds = [kind for kind in KINDS if kind in request]
    if len(kinds) != 1:
        raise ValueError(f"the request must contain exactly one of the keys command, {', '.join(KINDS)}")
    if kinds == [CONNECT]:
        port = resolve_port(request[CONNECT], env)
        return lambda: _forward_port(port, env)
    if kinds == [SSH]:
        return lambda: _hold_connection(mark)
    if kinds == [SFTP]:
        # This import is slow, and most programs do not need it.
        from pools.runtimes.shim.channels.sftp import server, wire

        wire.long_name(b"", os.lstat("/"))  # load the month names before the process enters the pod
        return lambda: _serve_files(server.serve, env.get("HOME", "."))
    path = request[kinds[0]]
    if not isinstance(path, str) or "\0" in path:
        raise TypeError(f"{kinds[0]} must be a path")
    if kinds == [COPY_TO]:
        return lambda: _receive_copy(path)
    return lambda: _send_copy(path)


def run_program(program: Callable[[], int]) -> None:
    """Run the program in this forked process inside the pod, and exit."""
    code = 1
    try:
        os.closerange(3, OPEN_FILES_SOFT)  # close the relay's files
        for number in (signal.SIGPIPE, signal.SIGHUP):
            # Ignore these signals: the program ends when its pipes close, and then cleans up.
            signal.signal(number, signal.SIG_IGN)
        code = program()
    except BaseException as error:  # the forked process must exit here, even after an unexpected error
        _report(repr(error))
    finally:
        os._exit(code)


def _receive_copy(path: str) -> int:
    unpacker = Unpacker(path)
    try:
        while data := os.read(0, BLOCK):
            unpacker.feed(data)
        unpacker.close()
    except CopyError as error:
        _report(str(error))
        return 1
    finally:
        unpacker.abort()
    return 0


def _send_copy(path: str) -> int:
    """Write an archive to stdout. The exit code is 1 if any file was omitted."""
    omitted = False

    def skip(message: str) -> None:
        nonlocal omitted
        omitted = True
        _report(message)

    try:
        for data in Packer(path, skip):
            _write(1, data)
    except CopyError as error:
        skip(str(error))
    return int(omitted)


def _forward_port(port: int, env: Mapping[str, str]) -> int:
    """Forward stdin and stdout to a port. Close stderr when the port is connected."""
    try:
        connection = connect(port, env)
    except NotListening as error:
        _report(str(error))
        return 1
    os.close(2)
    try:
        forward(connection)
    except OSError:  # one side has reset the connection
        return 1
    return 0


def _hold_connection(mark: str) -> int:
    """Print the channel's ID, and run until stdin is closed.

    The processes of an SSH connection have this ID and end with the connection.
    """
    _write(1, mark.encode())
    while os.read(0, BLOCK):
        pass
    return 0


def _serve_files(serve: Callable[[Callable[[bytes], None], str], None], home: str) -> int:
    try:
        serve(lambda packet: _write(1, packet), home)
    except Exception as error:
        _report(f"The SFTP server has failed: {error!r}")
        return 1
    return 0


def _report(message: str) -> None:
    _write(2, message.encode("utf-8", "replace") + b"\n")


def _write(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
