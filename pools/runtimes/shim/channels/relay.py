"""Relay between a channel's connection and the command in the pod.

It is a child of the shim and stays outside the pod.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import socket
import time

from pools.runtimes.shim.channels.command import Command, start_command
from pools.runtimes.shim.channels.frames import (
    CHUNK,
    CREDIT,
    END,
    ERRORS,
    FROM_CLIENT,
    INPUT,
    OUTPUT,
    RESIZE,
    SIGNAL,
    START,
    STATUS,
    WINDOW,
    BrokenFrames,
    FrameReader,
    decode_credit,
    encode_credit,
    encode_frame,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from pools.runtimes.shim.pod import Pod

START_SECONDS = 30.0  # time for the client to send its request
INVALID = 422  # HTTP status of an invalid request
FLUSH_SECONDS = 30.0  # time for the client to receive the status
DISCONNECTED = "the client has disconnected"
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_END_OF_INPUT = b"\x04"  # byte that a terminal sends when the input ends


def run(pod: Pod, connection: int, shim: int, mark: str) -> None:
    """Serve the channel in this forked process, and exit."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != shim:
        os._exit(1)
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    os.setsid()
    signals = _replace_files_and_signals(connection)
    relay = Relay(socket.socket(fileno=connection), signals)
    try:
        relay.serve(lambda request: start_command(pod, libc, request, mark))
    # Sending may fail before the relay notices that the client has disconnected.
    except (OSError, BrokenFrames):
        relay.hang_up()
    os._exit(0)


def _replace_files_and_signals(connection: int) -> int:
    """Close the shim's files and reset its signal handlers. Return a pipe that signals SIGCHLD."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    for name in os.listdir("/proc/self/fd"):
        fd = int(name)
        if fd > 2 and fd != connection:
            try:
                os.close(fd)
            except OSError:  # the descriptor that listed the directory has already been closed
                pass
    readable, writable = os.pipe()
    os.set_blocking(readable, False)
    os.set_blocking(writable, False)
    signal.set_wakeup_fd(writable)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    return readable


class Relay:
    """Relay of one channel. The protocol's flow control window limits the size of all buffers."""

    def __init__(self, connection: socket.socket, signals: int) -> None:
        self._connection, self._signals = connection, signals
        connection.setblocking(False)
        self._frames = FrameReader(FROM_CLIENT)
        self._to_client = bytearray()
        self._to_command = bytearray()
        self._window = WINDOW  # bytes of output that the client can still accept
        self._input_ended = False
        self._command: Command | None = None
        self._requests: list[bytes] = []
        self._early_size: dict[str, object] | None = None  # terminal size received before the command started

    def serve(self, start: Callable[[dict[str, object]], Command]) -> None:
        deadline = time.monotonic() + START_SECONDS
        while not self._requests:
            if time.monotonic() > deadline:
                raise BrokenFrames("no request")
            self._wait({}, min(deadline - time.monotonic(), 1.0))
        try:
            self._command = start(json.loads(self._requests[0]))
        except (ValueError, KeyError, TypeError) as error:
            self._finish({"error": f"The request is not valid: {error}.", "status": INVALID})
            return
        if self._command.failure:
            self._finish({"error": self._command.failure, "exit_code": 127})
            return
        if self._early_size is not None:
            self._command.resize(self._early_size)
        while not self._command.is_over:
            self._wait(self._command.poll_events(self._window > 0, bool(self._to_command)), 60.0)
            self._write_input()
        ended_by = self._command.signal_name
        self._finish({"exit_code": self._command.exit_code, **({"signal": ended_by} if ended_by else {})})

    def _wait(self, command_fds: dict[int, int], seconds: float) -> None:
        """Handle the next events. Raises OSError if the client disconnects."""
        poller = select.poll()
        mask = select.POLLIN | select.POLLRDHUP | (select.POLLOUT if self._to_client else 0)
        poller.register(self._connection, mask)
        poller.register(self._signals, select.POLLIN)
        for fd, events in command_fds.items():
            poller.register(fd, events)
        ready = dict(poller.poll(max(seconds, 0.0) * 1000))
        own = ready.pop(self._connection.fileno(), 0)
        if own & (select.POLLHUP | select.POLLERR | select.POLLRDHUP):
            raise OSError(DISCONNECTED)
        if own & select.POLLIN:
            self._receive()
        if own & select.POLLOUT:
            self._send()
        if ready.pop(self._signals, 0):
            os.read(self._signals, 4096)
        if self._command is not None:
            self._command.reap()
            for fd in ready:
                self._read_output(fd)

    def _receive(self) -> None:
        data = self._connection.recv(CHUNK)
        if not data:
            raise OSError(DISCONNECTED)
        for kind, payload in self._frames.feed(data):
            if kind == START:
                if self._requests:
                    raise BrokenFrames("the client sent a second request")
                self._requests.append(payload)
            elif kind == INPUT:
                self._to_command += payload
                if len(self._to_command) > WINDOW:
                    raise BrokenFrames("the client sent more input than the window allows")
            elif kind == CREDIT:
                self._window = min(self._window + decode_credit(payload), WINDOW)
            elif kind == RESIZE and self._command is None:
                self._early_size = json.loads(payload)
            elif kind == RESIZE and self._command is not None:
                self._command.resize(json.loads(payload))
            elif kind == SIGNAL and self._command is not None:
                self._command.send_signal(payload.decode("ascii", "replace"))
            elif kind == END:
                self._input_ended = True

    def _write_input(self) -> None:
        """Write buffered input to the command, and acknowledge it to the client."""
        assert self._command is not None
        if self._to_command:
            written = self._command.write(self._to_command)
            del self._to_command[:written]
            if written:
                self._queue(encode_credit(written))
        if self._input_ended and not self._to_command:
            self._input_ended = False
            if self._command.has_terminal:
                self._command.write(_END_OF_INPUT)
            else:
                self._command.close_input()

    def _read_output(self, fd: int) -> None:
        assert self._command is not None
        if fd not in self._command.outputs or self._window <= 0:
            return
        kind = OUTPUT if self._command.outputs[fd] == 1 else ERRORS
        data = self._command.read(fd, min(CHUNK, self._window))
        if data:
            self._window -= len(data)
            self._queue(encode_frame(kind, data))
        elif fd not in self._command.outputs and self._command.reports_ends:
            self._queue(encode_frame(END, bytes((kind,))))

    def _queue(self, frame: bytes) -> None:
        self._to_client += frame
        self._send()

    def _send(self) -> None:
        try:
            sent = self._connection.send(self._to_client)
        except BlockingIOError:
            return
        del self._to_client[:sent]

    def _finish(self, status: dict[str, object]) -> None:
        """Send the exit status, and wait until the client has received everything and disconnected."""
        self._connection.settimeout(FLUSH_SECONDS)
        self._connection.sendall(bytes(self._to_client) + encode_frame(STATUS, json.dumps(status).encode()))
        self._connection.shutdown(socket.SHUT_WR)
        while self._connection.recv(CHUNK):
            pass

    def hang_up(self) -> None:
        """Stop a running command as if its terminal had been closed, and give it time to exit."""
        if self._command is None or self._command.failure or self._command.has_exited:
            return
        self._command.hang_up()
        deadline = time.monotonic() + self._command.hang_up_seconds
        while not self._command.has_exited and time.monotonic() < deadline:
            if select.select([self._signals], [], [], max(deadline - time.monotonic(), 0.0))[0]:
                os.read(self._signals, 4096)
            self._command.reap()
