"""Scripts that run in the background and outlive a restart of the agent."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator

from .state import STATE, output_end, read_file, write_private_file

# The exit code is written to a file, because a restarted agent is not the script's parent process.
WRAPPER = '/bin/sh "$0.sh"; echo $? > "$0.exit.new"; mv "$0.exit.new" "$0.exit"'
JOB_VARIABLE = "BERTH_AGENT_JOB"  # environment variable with the path of the job that a process belongs to


class Job:
    """Background script that runs in at most one process at a time.

    Its state is in files that are named after the job.
    """

    def __init__(self, name: str) -> None:
        self.path = os.path.join(STATE, name)
        self.output = self.path + ".output"

    def start(self, script: str, env: dict[str, str]) -> None:
        """Run the script in its own session.

        The script is passed as a file, because all users can see command lines.
        """
        self.kill()
        write_private_file(self.path + ".sh", script)
        write_private_file(self.output, "")
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path + ".exit")
        with open(self.output, "wb") as output:
            process = subprocess.Popen(
                self._command, env={**env, JOB_VARIABLE: self.path}, stdin=subprocess.DEVNULL, stdout=output,
                stderr=output, start_new_session=True,
            )  # fmt: skip
        # Even if the script has already ended, its start time is available until the process is reaped.
        began = _stat_fields(process.pid)[19]
        record = "%d %s %s %d" % (process.pid, began, boot_id(), time.time())
        write_private_file(self.path + ".pid", record)

    def kill(self) -> None:
        """Kill all processes in the script's session, and wait until they have ended."""
        while True:
            pids = self._session_pids()
            if not pids:
                return
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.01)

    def _session_pids(self) -> list[int]:
        """Return the IDs of the processes in the script's session, even if the script itself has ended."""
        fields = read_file(self.path + ".pid").split()
        recorded = fields[0] if len(fields) == 4 and fields[2] == boot_id() else ""
        is_running, mark = self._running_pid() is not None, _job_variable(self.path)
        sessions, pids, candidates = {recorded}, [], []
        for pid, session in _live_processes():
            if is_running and session == recorded:
                pids.append(pid)
            elif mark in _read_strings(pid, "environ") and _is_on_this_machine(pid):
                candidates.append((pid, session))
                if _read_strings(pid, "cmdline") == [os.fsencode(word) for word in self._command]:
                    sessions.add(session)
        return pids + [pid for pid, session in candidates if session in sessions]

    @property
    def _command(self) -> list[str]:
        return ["/bin/sh", "-c", WRAPPER, self.path]

    @property
    def is_running(self) -> bool:
        return self._running_pid() is not None

    @property
    def exit_code(self) -> int | None:
        """Exit code, or None while the script runs.

        The exit code is -9 if the script was killed or never started.
        """
        if self.is_running:
            return None
        code = read_file(self.path + ".exit")
        return int(code) if code.isdigit() else -signal.SIGKILL

    @property
    def began_at(self) -> float:
        fields = read_file(self.path + ".pid").split()
        return float(fields[3]) if len(fields) == 4 else time.time()

    @property
    def has_started_since_boot(self) -> bool:
        """Whether the script has been started since the last boot."""
        fields = read_file(self.path + ".pid").split()
        return len(fields) == 4 and fields[2] == boot_id()

    def read_output(self) -> str:
        return output_end(self.output)

    def _running_pid(self) -> int | None:
        fields = read_file(self.path + ".pid").split()
        if len(fields) != 4 or fields[2] != boot_id():
            return None
        pid = int(fields[0])
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
        return pid if start_time(pid) == fields[1] else None


def boot_id() -> str:
    return read_file("/proc/sys/kernel/random/boot_id")


def start_time(pid: int) -> str:
    """Return a process's start time in clock ticks since boot, or an empty string if it has ended."""
    fields = _stat_fields(pid)
    return "" if not fields or fields[0] in "ZX" else fields[19]


def _stat_fields(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat from the third on, or an empty list if the process has ended."""
    return read_file("/proc/%d/stat" % pid).rpartition(")")[2].split()


def _job_variable(path: str) -> bytes:
    """Return the environment entry that identifies a job's processes.

    Process IDs are not enough, because they may be reused.
    """
    return os.fsencode("%s=%s" % (JOB_VARIABLE, path))


def _live_processes() -> Iterator[tuple[int, str]]:
    """Yield the process ID and the session ID of every other running process."""
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            fields = _stat_fields(int(name))
            if fields and fields[0] not in "ZX":
                yield int(name), fields[3]


def _read_strings(pid: int, name: str) -> list[bytes]:
    """Read a process's command line or environment. Return an empty list if the process has ended."""
    try:
        with open("/proc/%d/%s" % (pid, name), "rb") as file:
            return file.read().split(b"\0")[:-1]
    except OSError:
        return []


def _is_on_this_machine(pid: int) -> bool:
    """Return whether the process runs outside containers.

    Containers may have agents of their own, whose processes do not count.
    """
    try:
        if os.path.exists(STATE):
            return os.path.samefile("/proc/%d/root%s" % (pid, STATE), STATE)
        return os.path.samefile("/proc/%d/ns/mnt" % pid, "/proc/self/ns/mnt")
    except OSError:
        return False
