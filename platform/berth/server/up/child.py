"""Keep one child process running."""

import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

STEADY_AFTER = 30.0
LONGEST_PAUSE = 10.0
LOG_LIMIT = 20 * 1024 * 1024


@dataclass
class Child:
    """A child process. `command` is called at each start. `stop_by` is the signal for an orderly stop."""

    name: str
    command: Callable[[], list[str]]
    env: Mapping[str, str]
    log: Path
    passes: tuple[int, ...] = ()
    stop_by: int = signal.SIGTERM
    process: subprocess.Popen[bytes] | None = None
    due: float | None = None
    _started: float = 0.0
    _failures: int = field(default=0)

    @property
    def pid(self) -> int | None:
        return self.process.pid if self.process else None

    def start(self, now: float) -> None:
        command = self.command()
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                command,
                env=dict(self.env),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                pass_fds=self.passes,
                cwd="/",
            )
        self._started, self.due = now, None

    def ended(self, now: float) -> int | None:
        """Return the exit code once, and schedule a restart. The pause grows with each failure in a row."""
        if self.process is None or (code := self.process.poll()) is None:
            return None
        self._failures = 1 if now - self._started >= STEADY_AFTER else self._failures + 1
        pause = 0.0 if self._failures == 1 else min(LONGEST_PAUSE, 0.25 * 2 ** (self._failures - 2))
        self.process, self.due = None, now + pause
        return code

    def ask_to_stop(self) -> None:
        self.due = None
        if self.process and self.process.poll() is None:
            self.process.send_signal(self.stop_by)

    def kill(self) -> None:
        if self.process and self.process.poll() is None:
            self.process.kill()

    def trim_log(self) -> None:
        """Copy a log that is too long, then truncate it, because the process keeps the file open."""
        if self.log.exists() and self.log.stat().st_size > LOG_LIMIT:
            shutil.copyfile(self.log, self.log.with_name(self.log.name + ".1"))
            os.truncate(self.log, 0)

    def log_tail(self, lines: int = 8) -> str:
        if not self.log.exists():
            return ""
        with self.log.open("rb") as log:
            log.seek(max(0, self.log.stat().st_size - 8192))
            return "\n".join(log.read().decode(errors="replace").splitlines()[-lines:])
