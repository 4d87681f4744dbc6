"""Slots that run calls in a disposable process or in a thread."""

import signal
import socket
import subprocess
import sys
from typing import Protocol

import cloudpickle

from berth.core.frames import unpacked
from berth.worker import calls
from berth.worker.executor import receive, send
from pools.plugins.base import Plugin
from pools.plugins.facts import InstanceInfo

PATIENCE = 10.0  # seconds for a process to exit the contexts of its plugins


class Slot(Protocol):
    """Run one call at a time."""

    def run(self, payload: bytes) -> calls.Outcome: ...

    def interrupt(self) -> None:
        """Stop the running call; may be called from any thread."""
        ...

    def close(self) -> None:
        """Release resources. Call this when no call is running and none will follow."""
        ...


class ThreadSlot:
    """Slot in the worker's process. All calls share its modules, and a crash ends all of them."""

    def __init__(self, plugins: tuple[Plugin, ...], most: int) -> None:
        self._plugins, self._most = plugins, most

    def run(self, payload: bytes) -> calls.Outcome:
        return calls.run(payload, self._plugins, self._most)

    def interrupt(self) -> None:
        """Return the call to the server without waiting: a thread cannot be stopped."""

    def close(self) -> None:
        """Do nothing."""


class ProcessSlot:
    """Slot with a separate process, which runs many calls and is restarted after a crash."""

    def __init__(self, plugins: tuple[Plugin, ...], instance: InstanceInfo, most: int) -> None:
        self._setup = cloudpickle.dumps((plugins, instance))
        self._most = most
        self._process: subprocess.Popen[bytes] | None = None
        self._line: socket.socket | None = None

    def run(self, payload: bytes) -> calls.Outcome:
        try:
            line = self._line or self._start()
            send(line, [({}, payload)])
            message = receive(line)
        except OSError:
            message = None
        if message is None:
            return calls.interrupted(f"its process {self._exit_description()}")
        [(header, data)] = unpacked(message)
        if header["kind"] == "interrupted":
            self.close()
        return calls.Outcome(header["kind"], header["details"], data)

    def interrupt(self) -> None:
        process = self._process
        if process is not None and process.poll() is None:
            process.send_signal(signal.SIGINT)

    def kill(self) -> None:
        process = self._process
        if process is not None and process.poll() is None:
            process.kill()

    def close(self) -> None:
        """End the process, which then exits the contexts of its plugins."""
        if self._line is not None:
            self._line.close()
            self._line = None
        if self._process is not None:
            try:
                self._process.wait(PATIENCE)
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
        self._line = ours
        send(ours, [({"most": self._most}, self._setup)])
        return ours

    def _exit_description(self) -> str:
        process, self._process = self._process, None
        if self._line is not None:
            self._line.close()
            self._line = None
        if process is None:
            return "could not be started"
        try:
            code = process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            code = process.wait()
        return f"died by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
