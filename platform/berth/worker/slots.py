"""Slots that run calls, each in a disposable process or in a thread."""

import signal
import socket
import subprocess
import sys
from typing import Protocol

import cloudpickle

from berth.core.frames import unpack_frames
from berth.worker import calls
from berth.worker.executor import receive, send
from pools.plugins.base import Plugin
from pools.plugins.facts import InstanceInfo

EXIT_SECONDS = 10.0  # maximum time for a process to exit the contexts of its plugins


class Slot(Protocol):
    """Slot that runs one call at a time."""

    def run(self, payload: bytes) -> calls.CallOutcome: ...

    def interrupt(self) -> None:
        """Stop the running call. Safe to call from any thread."""
        ...

    def close(self) -> None:
        """Close the slot. Must not be called while a user function is running in the slot."""
        ...


class ThreadSlot:
    """Slot in the worker's own process.

    All calls share the process's modules, and a crash of the process aborts all of them.
    """

    def __init__(self, plugins: tuple[Plugin, ...], result_bytes_max: int) -> None:
        self._plugins, self._result_bytes_max = plugins, result_bytes_max

    def run(self, payload: bytes) -> calls.CallOutcome:
        return calls.run(payload, self._plugins, self._result_bytes_max)

    def interrupt(self) -> None:
        """Do nothing, because a thread cannot be stopped. The call is reported as interrupted."""

    def close(self) -> None:
        """Do nothing, because the slot has no resources of its own."""


class ProcessSlot:
    """Slot that runs its calls in a separate process, which is restarted after a crash."""

    def __init__(self, plugins: tuple[Plugin, ...], instance: InstanceInfo, result_bytes_max: int) -> None:
        self._setup = cloudpickle.dumps((plugins, instance))
        self._result_bytes_max = result_bytes_max
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None

    def run(self, payload: bytes) -> calls.CallOutcome:
        try:
            connection = self._socket or self._start()
            send(connection, [({}, payload)])
            message = receive(connection)
        except OSError:
            message = None
        if message is None:
            return calls.interrupted_outcome(f"the call's process {self._exit_description()}")
        [(header, data)] = unpack_frames(message)
        if header["kind"] == "interrupted":
            self.close()
        return calls.CallOutcome(header["kind"], header["details"], data)

    def interrupt(self) -> None:
        process = self._process
        if process is not None and process.poll() is None:
            process.send_signal(signal.SIGINT)

    def kill(self) -> None:
        process = self._process
        if process is not None and process.poll() is None:
            process.kill()

    def close(self) -> None:
        """Close the connection, so that the process exits its plugins' context managers and ends.

        Kill it if this takes too long.
        """
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        if self._process is not None:
            try:
                self._process.wait(EXIT_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None

    def _start(self) -> socket.socket:
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "berth.worker.executor", str(theirs.fileno())],
                stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()],
            )  # fmt: skip
        self._socket = ours
        send(ours, [({"most": self._result_bytes_max}, self._setup)])
        return ours

    def _exit_description(self) -> str:
        process, self._process = self._process, None
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        if process is None:
            return "could not be started"
        try:
            code = process.wait(EXIT_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            code = process.wait()
        return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
