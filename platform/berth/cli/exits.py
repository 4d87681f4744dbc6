"""Exit codes, and the code for each error and workload outcome."""

import sys
from enum import IntEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from berth.client.models.workloads import Workload


class ExitCode(IntEnum):
    DONE = 0
    REFUSED = 1
    USAGE = 2
    NOT_SIGNED_IN = 3
    NOT_FOUND = 4
    CONFLICT = 5
    UNREACHABLE = 6
    WORKLOAD_FAILED = 10
    WORKLOAD_CANCELLED = 11
    INTERRUPTED = 130


MEANINGS = """\b
Exit codes:
  0    done; with --watch, --follow or logs -f: the workload completed
  1    the server refused, or broke
  2    bad usage or bad input
  3    not signed in
  4    not found, or not yours to see
  5    conflict: its state, or somebody's change meanwhile
  6    the server cannot be reached
  10   the workload failed      11   the workload was cancelled
  130  interrupted by Ctrl-C

\b
`berth quota preview` has its own: 0 nothing would change, 1 something would,
255 it cannot be told. `berth replay` and `berth health` end with 1 where
something is not as it should be."""


def code_of_outcome(workload: "Workload") -> ExitCode:
    """How a command that stayed until the end of a workload ends itself."""
    outcomes = {"failed": ExitCode.WORKLOAD_FAILED, "cancelled": ExitCode.WORKLOAD_CANCELLED}
    return outcomes.get(workload.phase, ExitCode.DONE)


def explain_error(error: Exception) -> tuple[ExitCode, list[str]] | None:
    """The exit code and the lines that tell a person what went wrong; None for an error of our own making."""
    from berth.client import errors
    from berth.client.config import BadSettings

    if isinstance(error, errors.NotSignedIn):
        return ExitCode.NOT_SIGNED_IN, [f"{error.detail} (berth login)"]
    if isinstance(error, errors.Refused):
        codes: dict[type[errors.Refused], ExitCode] = {
            errors.Invalid: ExitCode.USAGE, errors.NotFound: ExitCode.NOT_FOUND,
            errors.Conflict: ExitCode.CONFLICT,
        }  # fmt: skip
        return codes.get(type(error), ExitCode.REFUSED), error.lines()
    if isinstance(error, errors.Unreachable):
        return ExitCode.UNREACHABLE, [str(error)]
    spec = sys.modules.get("berth.core.spec")  # not imported for its error alone
    if spec is not None and isinstance(error, spec.SpecError):
        return ExitCode.USAGE, [str(problem) for problem in error.problems]
    if isinstance(error, errors.Ambiguous | BadSettings | BadInput):
        return ExitCode.USAGE, [str(error)]
    if isinstance(error, ModuleNotFoundError):
        return _missing_extra(error)
    return None


def _missing_extra(error: ModuleNotFoundError) -> tuple[ExitCode, list[str]] | None:
    """The extra to install, or None when a module of Berth itself is missing."""
    package = (error.name or "").partition(".")[0]
    if package in ("", "berth", "scheduler", "pools", "projects"):
        return None
    extra = "top" if package == "textual" else "server"
    command = f"pip install 'berth-platform[{extra}]'"
    return ExitCode.USAGE, [f"This command needs packages that are not installed ({package}): {command}"]


class BadInput(Exception):
    """Something that was typed or read cannot be used; the text says what and what would be."""
