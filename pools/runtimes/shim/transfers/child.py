"""Run a transfer in a child process, retry it after temporary errors, and record its progress."""

from __future__ import annotations

import _signal as signal  # type: ignore[import-not-found]
import os
import time

from pools.runtimes.shim.interrupts import Interrupted, Interrupts
from pools.runtimes.shim.records import write_record
from pools.runtimes.shim.wakes import wake_listeners

PAUSES = (1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 30.0, 60.0, 60.0)  # seconds between attempts
REPORT_SECONDS = 1.0
RETRY, BROKEN, FAILED, PROGRESS, DONE = "retry", "broken", "failed", "progress", "done"
_PR_SET_PDEATHSIG = 1


class TransferFailure(Exception):
    """Raised if an attempt fails. `kind` says whether to retry."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class Transfer:
    """Transfer of data to one pod, in a child process.

    Subclasses define the messages and the method `transfer`, which runs in the child. Its argument
    `is_broken` is true if the previous attempt ended in a BROKEN error. If the pod is stopped during the
    transfer, `cause` is set.
    """

    progress = ""  # prefix of progress messages, such as "downloading the code"
    failure = ""  # prefix of error messages
    stopped = ""  # message if the pod was stopped

    def __init__(self, directory: str, order: dict[str, str], secret: str, interrupts: Interrupts) -> None:
        self._directory, self._order, self._secret = directory, order, secret
        self._interrupts = interrupts
        self._reported_at = 0.0
        self.cause = ""

    def prepare(self) -> None:
        """Prepare an attempt, for example by deleting the files of the previous one."""

    def transfer(self, output: int, is_broken: bool) -> None:
        """Transfer the data, in the child process. Raises TransferFailure and OSError."""
        raise NotImplementedError

    def run(self) -> str:
        """Run the transfer with retries. Return an error message or "". Raises OSError."""
        try:
            kind = ""
            for number, pause in enumerate((*PAUSES, None), 1):
                kind, message = self._attempt(kind == BROKEN)
                if kind not in (RETRY, BROKEN) or pause is None:
                    return message and f"{self.failure}: {message}"
                attempt = f"attempt {number} of {len(PAUSES) + 1}"
                self._report(f"{self.progress}: {message.rstrip('.')}; {attempt}", True)
                self._pause(pause)
        except Interrupted as interrupted:
            self.cause = interrupted.cause
            return self.stopped
        return ""

    def _attempt(self, is_broken: bool) -> tuple[str, str]:
        """Run one attempt. Return the kind and message of the error, or two empty strings."""
        self.prepare()
        output, write_fd = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(output)
            self._run_child(write_fd, is_broken)
        os.close(write_fd)
        try:
            return self._wait(output)
        finally:
            os.close(output)
            _kill(pid)

    def _wait(self, output: int) -> tuple[str, str]:
        """Read the child's messages until it exits.

        Return the error's kind and text, or two empty strings.
        """
        os.set_blocking(output, False)
        data = b""
        while True:
            self._interrupts.wait(60, output)
            try:
                part = os.read(output, 65536)
            except BlockingIOError:
                continue
            data += part
            *lines, data = data.split(b"\n") if part else [data, b""]
            for line in lines:
                kind, _, text = line.decode("utf-8", "replace").partition(" ")
                if kind == PROGRESS:
                    self._report(text)
                elif kind == DONE:
                    return "", ""
                elif kind in (RETRY, BROKEN, FAILED):
                    return kind, text
            if not part:
                return FAILED, "the process that downloads it was killed"

    def _pause(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while (remaining := deadline - time.monotonic()) > 0:
            self._interrupts.wait(remaining)

    def _report(self, progress: str, is_important: bool = False) -> None:
        """Record the progress for the runtime to read, at most once a second unless `is_important` is set."""
        now = time.monotonic()
        if not is_important and now - self._reported_at < REPORT_SECONDS:
            return
        self._reported_at = now
        write_record(f"{self._directory}/progress", [("text", progress)], durable=False)
        wake_listeners(self._order["wake_dir"])

    def _run_child(self, output: int, is_broken: bool) -> None:
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.setsid()
            die_with_parent()
            self.transfer(output, is_broken)
            send(output, DONE, "")
        except TransferFailure as failure:
            send(output, failure.kind, str(failure))
        except BaseException as error:  # the forked child must exit here, even after an unexpected error
            reason = error.strerror or error if isinstance(error, OSError) else repr(error)
            send(output, FAILED, self.describe_error(str(reason)))
        os._exit(0)

    def describe_error(self, reason: str) -> str:
        """Return the message for an unexpected error or an operating system error."""
        return reason


def send(output: int, kind: str, text: str) -> None:
    """Send the shim a message, shortened so that a single write to the pipe is enough."""
    line = f"{kind} {' '.join(text.split())}".encode("utf-8", "replace")[:1000]
    os.write(output, line + b"\n")


def die_with_parent() -> None:
    import ctypes  # imported on demand, because the import is slow

    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    os.waitpid(pid, 0)
