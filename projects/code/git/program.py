"""Run git with limits, over allowed protocols only, and without this machine's git configuration."""

import os
import shlex
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from berth.parent_bound import parent_bound_command
from projects.code.git.errors import GitFailure, GitRejection

POLL_SECONDS = 0.25
MEMORY_KIB = 2 * 2**20  # maximum address space of git and of each helper
OUTPUT_MAX, ERRORS_MAX = 64 * 1024, 8 * 1024
# Limits in the units of `ulimit`: CPU seconds, 512-byte blocks per file, KiB of memory, no core dumps.
# If memory becomes scarce, the kernel kills git first. The shell kills git's helpers if Berth dies.
LIMITED = """trap 'kill -KILL 0' TERM
echo 1000 2> /dev/null > /proc/self/oom_score_adj || :
ulimit -c 0; ulimit -t "$1"; ulimit -f "$2"; ulimit -v "$3"; shift 3
exec 3<&0; "$@" <&3 3<&- & exec < /dev/null 3<&-; wait $!"""
SETTINGS: Mapping[str, str] = {
    "core.hooksPath": "/dev/null",
    "core.fsmonitor": "false",
    "core.bigFileThreshold": "8m",  # git does not hold larger files in memory
    "credential.helper": "",
    "protocol.version": "2",
    "fetch.fsckObjects": "true",
    "fetch.unpackLimit": "1",
    "fetch.recurseSubmodules": "false",
    "gc.auto": "0",
    "maintenance.auto": "false",
    "http.followRedirects": "false",
    "http.lowSpeedLimit": "1000",
    "http.lowSpeedTime": "60",
    "http.sslVerify": "true",
    "http.proxy": "",
    "init.defaultBranch": "main",
    "pack.threads": "1",
    "transfer.bundleURI": "false",
}


class GitInterrupted(Exception):
    """Raised if this process is stopped during a fetch. Another process then repeats the fetch."""


@dataclass(frozen=True, slots=True)
class GitProgram:
    """Runner for one fetch's git commands, in a private directory. `deadline` is a monotonic time."""

    directory: Path
    environment: Mapping[str, str]
    file_size: int
    deadline: float
    is_interrupted: Callable[[], bool]

    @property
    def repository(self) -> Path:
        return self.directory / "repository"

    def run(self, *arguments: str) -> tuple[int, str, str]:
        """Run a git command. Return its exit status, stdout and stderr, up to a size limit.

        Raises GitFailure at the deadline, GitRejection if git is not installed, and GitInterrupted if this
        process is being stopped.
        """
        output, errors = self.directory / "output", self.directory / "errors"
        with output.open("wb") as out, errors.open("wb") as err:
            process = self.start(arguments, out, err)
            self._wait(process)
        return process.returncode, _read_head(output, OUTPUT_MAX), _read_tail(errors, ERRORS_MAX)

    def start(
        self, arguments: Sequence[str], output: IO[bytes] | int, errors: IO[bytes] | int,
        source: int = subprocess.DEVNULL,
    ) -> "subprocess.Popen[bytes]":  # fmt: skip
        """Start a git command. If this process exits, the command and its child processes are killed."""
        seconds = max(1, int(self.deadline - time.monotonic()))
        limits = [str(seconds), str(self.file_size // 512), str(MEMORY_KIB)]
        command = ["nice", "-n", "10", "/bin/sh", "-c", LIMITED, "sh", *limits, "git", *arguments]
        try:
            return subprocess.Popen(
                parent_bound_command(command, death_signal=signal.SIGTERM),
                stdin=source, stdout=output, stderr=errors, cwd=self.directory, env=dict(self.environment),
                start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            raise GitFailure(f"The git program could not be started: {error.strerror}.") from None

    def kill(self, process: "subprocess.Popen[bytes]") -> None:
        """Kill the command and its child processes."""
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def raise_if_out_of_time(self) -> None:
        """Raise GitFailure after the deadline, or GitInterrupted if this process is being stopped."""
        if self.is_interrupted():
            raise GitInterrupted
        if time.monotonic() >= self.deadline:
            raise GitFailure(
                "The code was not fetched within the time limit set by BERTH_GIT_SECONDS. Ask an admin to "
                "raise it."
            )

    def _wait(self, process: "subprocess.Popen[bytes]") -> None:
        try:
            while True:
                try:
                    process.wait(POLL_SECONDS)
                except subprocess.TimeoutExpired:
                    self.raise_if_out_of_time()
                else:
                    break
        finally:
            self.kill(process)
        if process.returncode in (126, 127):
            raise GitRejection("The git program is not installed on the server. Ask an admin to install it.")


def base_environment(home: Path, transport: str, settings: Mapping[str, str]) -> dict[str, str]:
    """Return git's environment variables: one allowed protocol, no local configuration and no prompts."""
    settings = {**SETTINGS, **settings}
    pairs = {
        f"GIT_CONFIG_{part}_{number}": text
        for number, pair in enumerate(settings.items())
        for part, text in zip(("KEY", "VALUE"), pair, strict=True)
    }
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": str(home),
        "XDG_CONFIG_HOME": str(home),
        "LC_ALL": "C",
        "GIT_ALLOW_PROTOCOL": transport,
        "GIT_ASKPASS": "/bin/false",
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_NO_REPLACE_OBJECTS": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "SSH_ASKPASS_REQUIRE": "never",
        "GIT_CONFIG_COUNT": str(len(settings)),
        **pairs,
    }


def ssh_command(options: Mapping[str, str]) -> str:
    """Return the ssh command line for git."""
    words = ["ssh", "-F", "none"]
    for name, value in options.items():
        words += ["-o", f"{name}={value}"]
    return shlex.join(words)


def _read_head(path: Path, size: int) -> str:
    with path.open("rb") as file:
        return file.read(size).decode(errors="replace")


def _read_tail(path: Path, size: int) -> str:
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - size))
        return file.read().decode(errors="replace")
