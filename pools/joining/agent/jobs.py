"""Background scripts that outlive a restart of the agent."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time

from .state import STATE, last_output, read_file, write_private_file

# The exit code is in a file, because a restarted agent is not the script's parent process.
WRAPPER = '/bin/sh "$0.sh"; echo $? > "$0.exit.new"; mv "$0.exit.new" "$0.exit"'


class Job:
    """Script that runs in at most one process at a time.

    Its entire state is stored in files that are named after the job.
    """

    def __init__(self, name: str) -> None:
        self.path = os.path.join(STATE, name)
        self.output = self.path + ".output"

    def start(self, script: str, env: dict[str, str]) -> None:
        """Start the script in its own session.

        The script is in a file, because all users can see command lines.
        """
        self.kill()
        write_private_file(self.path + ".sh", script)
        write_private_file(self.output, "")
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path + ".exit")
        with open(self.output, "wb") as output:
            process = subprocess.Popen(
                ["/bin/sh", "-c", WRAPPER, self.path], env=env, stdin=subprocess.DEVNULL, stdout=output,
                stderr=output, start_new_session=True,
            )  # fmt: skip
        record = "%d %s %s %d" % (process.pid, _start_time(process.pid), boot_id(), time.time())
        write_private_file(self.path + ".pid", record)

    def kill(self) -> None:
        """Kill the script and its session if it is still running."""
        pid = self._running_pid()
        if pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
            while self._running_pid() is not None:
                time.sleep(0.01)

    @property
    def is_running(self) -> bool:
        return self._running_pid() is not None

    @property
    def exit_code(self) -> int | None:
        """Exit code, or None while the script runs. The exit code is -9 if the script was killed."""
        if self.is_running:
            return None
        code = read_file(self.path + ".exit")
        return int(code) if code.isdigit() else -signal.SIGKILL

    @property
    def began_at(self) -> float:
        fields = read_file(self.path + ".pid").split()
        return float(fields[3]) if len(fields) == 4 else time.time()

    @property
    def started_since_boot(self) -> bool:
        """Whether the script has been started since the last boot."""
        fields = read_file(self.path + ".pid").split()
        return len(fields) == 4 and fields[2] == boot_id()

    def read_output(self) -> str:
        return last_output(self.output)

    def _running_pid(self) -> int | None:
        fields = read_file(self.path + ".pid").split()
        if len(fields) != 4 or fields[2] != boot_id():
            return None
        pid = int(fields[0])
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
        return pid if _start_time(pid) == fields[1] else None


def boot_id() -> str:
    return read_file("/proc/sys/kernel/random/boot_id")


def _start_time(pid: int) -> str:
    """Return a live process's start time in clock ticks since boot, or an empty string."""
    fields = read_file("/proc/%d/stat" % pid).rpartition(")")[2].split()
    return "" if not fields or fields[0] in "ZX" else fields[19]
