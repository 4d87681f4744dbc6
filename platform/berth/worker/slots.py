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

PATIENCE = 10.0  # seconds for what stands around a process to be taken down


class Slot(Protocol):
    """One call at a time."""

    def run(self, payload: bytes) -> calls.Outcome: ...

    def interrupt(self) -> None:
        """End the call that runs; from any thread."""
        ...

    def close(self) -> None:
        """No call runs and none will."""
        ...


class ThreadSlot:
    """Runs in the worker's own process: what is loaded once is there for all, and who crashes takes all."""

    def __init__(self, plugins: tuple[Plugin, ...], most: int) -> None:
        self._plugins, self._most = plugins, most

    def run(self, payload: bytes) -> calls.Outcome:
        return calls.run(payload, self._plugins, self._most)

    def interrupt(self) -> None:
        """A thread cannot be ended: its call is given back, and its end is not waited for."""

    def close(self) -> None:
        """There is nothing to close."""


class ProcessSlot:
    """A process for many calls, started anew after it died."""

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
            return calls.interrupted(f"its process {self._how_it_ended()}")
        [(said, data)] = unpacked(message)
        if said["kind"] == "interrupted":
            self.close()
        return calls.Outcome(said["kind"], said["told"], data)

    def interrupt(self) -> None:
        process = self._process
        if process is not None and process.poll() is None:
            process.send_signal(signal.SIGINT)

    def kill(self) -> None:
        process = self._process
        if process is not None and process.poll() is None:
            process.kill()

    def close(self) -> None:
        """It takes down what its plugins put up, and ends."""
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

    def _how_it_ended(self) -> str:
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
