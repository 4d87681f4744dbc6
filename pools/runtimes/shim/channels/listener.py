"""Accept connections to a pod's channels, and kill processes that outlive their channel.

A relay serves each connection. When the relay ends, all processes with the channel's ID in their environment
are killed.
"""

from __future__ import annotations

import _signal as signal  # type: ignore[import-not-found]
import _socket
import os

from pools.runtimes.shim.channels.frames import STATUS, encode_frame
from pools.runtimes.shim.processes import descendants, send_signal

TYPE_CHECKING = False  # avoids importing `typing`, which takes half as long as starting Python
if TYPE_CHECKING:
    from pools.runtimes.shim.pod import Pod

SOCKET = "channel"
VARIABLE = "BERTH_CHANNEL"
MAX_CHANNELS = 32  # per pod
TOO_MANY = b'{"error": "This pod has %d open shells and transfers, which is the maximum. Close some first."}'
_MARKED = f"{VARIABLE}=".encode()
_KILL_PASSES = 100  # maximum number of passes; processes may fork while they are being killed


class Channels:
    """The open channels of one pod. `fd` is the listening socket, or None if it could not be created."""

    def __init__(self, pod: Pod) -> None:
        self._pod = pod
        self._socket: _socket.socket | None = None
        self._relays: dict[int, str] = {}  # channel IDs, by relay process ID
        self._ended: list[str] = []

    @property
    def fd(self) -> int | None:
        return None if self._socket is None else self._socket.fileno()

    def open(self) -> None:
        """Listen on the socket. If that fails, for example on a full disk, the pod has no channels."""
        listener = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
        directory = os.open(self._pod.directory, os.O_RDONLY | os.O_DIRECTORY)
        try:  # bind through a descriptor, because socket paths are limited to 107 bytes
            listener.bind(f"/proc/self/fd/{directory}/{SOCKET}")
            listener.listen(8)
        except OSError:
            listener.close()
            return
        finally:
            os.close(directory)
        listener.setblocking(False)
        self._socket = listener

    def accept(self) -> None:
        """Accept one connection and fork its relay."""
        assert self._socket is not None
        try:
            fd, _ = self._socket._accept()  # type: ignore[attr-defined]
        except OSError:  # the client has disconnected
            return
        connection = _socket.socket(fileno=fd)
        try:
            if len(self._relays) >= MAX_CHANNELS:
                connection.setblocking(False)
                connection.send(encode_frame(STATUS, TOO_MANY % MAX_CHANNELS))
                return
            self._fork(connection)
        except OSError:  # memory is too low for another process, or the client has disconnected
            return
        finally:
            connection.close()

    def _fork(self, connection: _socket.socket) -> None:
        mark, shim = os.urandom(8).hex(), os.getpid()
        pid = os.fork()
        if pid == 0:
            try:
                from pools.runtimes.shim.channels.relay import run

                run(self._pod, connection.fileno(), shim, mark)
            finally:
                os._exit(1)
        self._relays[pid] = mark
        self._pod.childless = False

    def record_exit(self, pid: int) -> None:
        """Record that a process, which may be a channel's relay, has exited."""
        mark = self._relays.pop(pid, None)
        if mark is not None:
            self._ended.append(mark)

    def sweep(self) -> None:
        """Kill the remaining processes of channels that have ended."""
        while self._ended:
            mark = _MARKED + self._ended.pop().encode()
            killed: set[int] = set()
            for _ in range(_KILL_PASSES):
                left = {pid for pid in descendants(os.getpid()) if _has_variable(pid, mark)} - killed
                if not left:
                    break
                for pid in left:
                    send_signal(pid, signal.SIGKILL)
                killed |= left

    def processes(self) -> set[int]:
        """Return the process IDs of all relays and all processes started by channels."""
        if not self._relays:
            return set()
        pids = {each for relay in self._relays for each in (relay, *descendants(relay))}
        return pids | {
            pid for pid in descendants(os.getpid()) if pid not in pids and _has_variable(pid, _MARKED)
        }

    def close(self) -> None:
        """Stop accepting connections, and kill all relays and their channels' processes."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
            try:
                os.unlink(f"{self._pod.directory}/{SOCKET}")
            except OSError:
                pass
        # Kill the relays first. Otherwise, some would report that their command was killed.
        for pid in sorted(self.processes(), key=lambda pid: pid not in self._relays):
            send_signal(pid, signal.SIGKILL)


def _has_variable(pid: int, start: bytes) -> bool:
    """Return whether the process's environment has a variable that begins with `start`."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return (b"\0" + file.read()).find(b"\0" + start) >= 0
    except OSError:
        return False
