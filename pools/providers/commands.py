"""Run command-line programs, such as Slurm's, on this machine or a remote one."""

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from pools.providers.base import ProviderError, ProviderErrorKind

# Environment variables that programs need. All others are withheld, because they may contain secrets.
INHERITED = ("PATH", "HOME", "USER", "LOGNAME", "SLURM_CONF")


@dataclass(frozen=True, slots=True)
class CommandResult:
    exit_code: int
    stdout: str
    stderr: str


class Commands(Protocol):
    """Runner for commands on one machine."""

    @property
    def machine_name(self) -> str:
        """Name of the machine for messages, such as "this machine"."""
        ...

    def run(self, arguments: Sequence[str], *, stdin: str = "", seconds: float) -> CommandResult:
        """Run a command and return its result. Raises ProviderError.

        After a timeout, the command may still have taken effect.
        """
        ...


def _inherited_environment() -> Mapping[str, str]:
    return {name: os.environ[name] for name in INHERITED if name in os.environ}


@dataclass(frozen=True)
class LocalCommands:
    """Runner for commands on the machine that runs Berth."""

    env: Mapping[str, str] = field(default_factory=_inherited_environment)
    machine_name: str = "the machine on which Berth runs"

    def run(self, arguments: Sequence[str], *, stdin: str = "", seconds: float) -> CommandResult:
        try:
            process = subprocess.Popen(
                list(arguments), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                env=self.env, cwd="/", start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            message = f"{arguments[0]} cannot run on {self.machine_name}: {error.strerror}"
            raise ProviderError(ProviderErrorKind.SETTINGS, message) from error
        with process:
            try:
                output, errors = process.communicate(stdin.encode(), timeout=seconds)
            except subprocess.TimeoutExpired:
                message = f"{arguments[0]} did not finish within {seconds:g} s on {self.machine_name}"
                raise ProviderError(ProviderErrorKind.TIMEOUT, message) from None
            finally:
                # Kill the process group, because a shell's child would block this process on an open pipe.
                if process.returncode is None:
                    os.killpg(process.pid, signal.SIGKILL)
        return CommandResult(
            process.returncode, output.decode(errors="replace"), errors.decode(errors="replace")
        )
