"""Keep one child process running."""

import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Protocol

STABLE_SECONDS = 30.0
RESTART_PAUSE_MAX = 10.0
LOG_LIMIT = 20 * 1024 * 1024


class Process(Protocol):
    """Running process, such as a `subprocess.Popen`."""

    pid: int

    def poll(self) -> int | None: ...
    def send_signal(self, number: int, /) -> None: ...
    def kill(self) -> None: ...


def command_launcher(
    command: Callable[[], list[str]], env: Mapping[str, str], inherited_fds: Sequence[int] = ()
) -> Callable[[BinaryIO], subprocess.Popen[bytes]]:
    """Return a function that starts a command and sends its output to a log file.

    `command` is called before each start, and returns the arguments.
    """
    return lambda log: subprocess.Popen(
        command(),
        env=dict(env),
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        start_new_session=True,
        pass_fds=inherited_fds,
        cwd="/",
    )


@dataclass
class Child:
    """Child process of the supervisor.

    `launch` starts it with its log file, and `stop_signal` stops it gracefully.
    """

    name: str
    launch: Callable[[BinaryIO], Process]
    log: Path
    stop_signal: int = signal.SIGTERM
    process: Process | None = None
    restart_at: float | None = None
    _started: float = 0.0
    _failures: int = field(default=0)

    @property
    def pid(self) -> int | None:
        return self.process.pid if self.process else None

    def start(self, now: float) -> None:
        """Start the process. If forking fails, retry as if the process had exited."""
        self._started, self.restart_at = now, None
        with self.log.open("ab") as log:
            try:
                self.process = self.launch(log)
            except (ConnectionError, TimeoutError) as error:
                log.write(f"{self.name} could not be started: {error}\n".encode())
                self._schedule_restart(now)

    def poll_exit(self, now: float) -> int | None:
        """If the child has exited since the last call, schedule its restart and return its exit code.

        Otherwise, return None. The delay before the restart grows with each consecutive failure.
        """
        if self.process is None or (code := self.process.poll()) is None:
            return None
        self.process = None
        self._schedule_restart(now)
        return code

    def _schedule_restart(self, now: float) -> None:
        self._failures = 1 if now - self._started >= STABLE_SECONDS else self._failures + 1
        pause = 0.0 if self._failures == 1 else min(RESTART_PAUSE_MAX, 0.25 * 2 ** (self._failures - 2))
        self.restart_at = now + pause

    def request_stop(self) -> None:
        self.restart_at = None
        if self.process and self.process.poll() is None:
            self.process.send_signal(self.stop_signal)

    def kill(self) -> None:
        if self.process and self.process.poll() is None:
            self.process.kill()

    def trim_log(self) -> None:
        """Copy an oversized log, then truncate it, because the process keeps the file open."""
        if self.log.exists() and self.log.stat().st_size > LOG_LIMIT:
            shutil.copyfile(self.log, self.log.with_name(self.log.name + ".1"))
            os.truncate(self.log, 0)

    def log_tail(self, lines: int = 8) -> str:
        if not self.log.exists():
            return ""
        with self.log.open("rb") as log:
            log.seek(max(0, self.log.stat().st_size - 8192))
            return "\n".join(log.read().decode(errors="replace").splitlines()[-lines:])
