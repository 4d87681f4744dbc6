"""Commands on a machine that has a cluster's command line programs."""

import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from pools.providers.base import ProviderError, ProviderErrorKind

# Variables that programs need. All others stay here, because Berth's environment contains its secrets.
INHERITED = ("PATH", "HOME", "USER", "LOGNAME", "SLURM_CONF")


@dataclass(frozen=True, slots=True)
class CommandResult:
    exit_code: int
    stdout: str
    stderr: str


class Commands(Protocol):
    """Machine on which commands run."""

    @property
    def place(self) -> str:
        """Return the machine as named in messages, such as "this machine"."""
        ...

    def run(self, arguments: Sequence[str], *, stdin: str = "", seconds: float) -> CommandResult:
        """Run a command and return its result.

        Raises ProviderError if the command cannot be started, or does not end within this time: it may then
        have taken effect.
        """
        ...


def _inherited_environment() -> Mapping[str, str]:
    return {name: os.environ[name] for name in INHERITED if name in os.environ}


@dataclass(frozen=True)
class LocalCommands:
    """The machine on which Berth runs."""

    env: Mapping[str, str] = field(default_factory=_inherited_environment)
    place: str = "the machine on which Berth runs"

    def run(self, arguments: Sequence[str], *, stdin: str = "", seconds: float) -> CommandResult:
        try:
            completed = subprocess.run(
                list(arguments), input=stdin.encode(), capture_output=True, check=False, timeout=seconds,
                env=self.env, cwd="/",
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            message = f"{arguments[0]} did not end within {seconds:g} s on {self.place}"
            raise ProviderError(ProviderErrorKind.TIMEOUT, message) from None
        except OSError as error:
            message = f"{arguments[0]} cannot run on {self.place}: {error.strerror}"
            raise ProviderError(ProviderErrorKind.SETTINGS, message) from error
        output, errors = (part.decode(errors="replace") for part in (completed.stdout, completed.stderr))
        return CommandResult(completed.returncode, output, errors)
