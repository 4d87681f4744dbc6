"""Exit codes for errors and workload outcomes."""

import sys
from collections.abc import Sequence
from difflib import get_close_matches
from enum import IntEnum

from berth.cli.printing.text import print_message
from berth.core.problems import Problem, format_value
from berth.core.version import server_python_error


class ExitCode(IntEnum):
    DONE = 0
    REJECTED = 1
    USAGE = 2
    NOT_SIGNED_IN = 3
    NOT_FOUND = 4
    CONFLICT = 5
    UNREACHABLE = 6
    WORKLOAD_FAILED = 10
    WORKLOAD_CANCELLED = 11
    INTERRUPTED = 130


EXIT_CODES_HELP = """\b
Exit codes:
  0    success; with --watch, --follow or logs -f: the workload completed
  1    rejected by the server, or a server error
  2    invalid usage or input
  3    not signed in
  4    not found, or not visible to you
  5    conflict with the object's state or a concurrent change
  6    the server cannot be reached
  10   the workload failed
  11   the workload was cancelled
  130  interrupted by Ctrl-C

\b
`berth quota preview` and `berth quota group preview` return 0 without effects,
1 with effects and 255 on errors. `berth replay` returns 1 if the decision
differs, `berth health` if a check fails."""


def exit_code_for(outcome: str) -> ExitCode:
    """Return the exit code for the outcome of a workload or array that a command waited for."""
    outcomes = {"failed": ExitCode.WORKLOAD_FAILED, "cancelled": ExitCode.WORKLOAD_CANCELLED}
    return outcomes.get(outcome, ExitCode.DONE)


def explain_error(error: Exception) -> tuple[ExitCode, list[str]] | None:
    """Return the exit code and the message lines of an expected error, or None for an unexpected one."""
    from berth.client import errors
    from berth.client.config import InvalidSettings

    if isinstance(error, errors.NotSignedIn):
        return ExitCode.NOT_SIGNED_IN, [f"{error.detail} (berth login)"]
    if isinstance(error, errors.Rejected):
        codes: dict[type[errors.Rejected], ExitCode] = {
            errors.Invalid: ExitCode.USAGE, errors.NotFound: ExitCode.NOT_FOUND,
            errors.Conflict: ExitCode.CONFLICT,
        }  # fmt: skip
        return codes.get(type(error), ExitCode.REJECTED), error.lines()
    if isinstance(error, errors.Unreachable):
        return ExitCode.UNREACHABLE, [str(error)]
    spec = sys.modules.get("berth.core.spec")  # a module that is not loaded cannot have raised the error
    if spec is not None and isinstance(error, spec.SpecError):
        return ExitCode.USAGE, [str(problem) for problem in error.problems]
    if isinstance(error, errors.Ambiguous | InvalidSettings | InvalidInput):
        return ExitCode.USAGE, [str(error)]
    if isinstance(error, errors.ClientError):
        return ExitCode.REJECTED, [str(error)]
    if isinstance(error, ModuleNotFoundError):
        return _explain_missing_extra(error)
    return None


def print_rejection(handle: str, error: Exception) -> ExitCode | None:
    """If the error is a rejection, print it and return its exit code. Otherwise, return None."""
    from berth.client.errors import Conflict, Forbidden, Invalid, NotFound

    is_rejection = isinstance(error, Conflict | Forbidden | Invalid | NotFound)
    explanation = explain_error(error) if is_rejection else None
    if explanation is None:
        return None
    for line in explanation[1]:
        print_message(f"{handle}: {line}")
    return explanation[0]


def _explain_missing_extra(error: ModuleNotFoundError) -> tuple[ExitCode, list[str]] | None:
    """Return the exit code and a message that names the extra to install.

    Return None if installing an extra would not help.
    """
    package = (error.name or "").partition(".")[0]
    if error.name == "berth.server":
        if (message := server_python_error()) is not None:
            return ExitCode.USAGE, [message]
        package = "berth-platform-server"
    if package in ("", "berth", "scheduler", "pools", "projects"):
        return None
    extra = {"textual": "top", "asyncssh": "ssh"}.get(package, "server")
    install = f"`pip install 'berth-platform[{extra}]'`"
    return ExitCode.USAGE, [f"This command needs {package}, which is not installed. Run {install}"]


class InvalidInput(Exception):
    """Raised for invalid input from the command line or a file. The message lists the allowed values."""


def invalid_value_error(option: str, message: str, value: object, allowed: str) -> InvalidInput:
    """Return the error for an invalid value, worded like the problems in REST responses."""
    return InvalidInput(str(Problem(option, message, format_value(value), allowed)))


def unknown_name_message(kind: str, value: str, key: str, allowed: Sequence[str]) -> str:
    """Return an error message that rejects an unknown name and suggests the nearest allowed name."""
    nearest = get_close_matches(key, allowed, n=1)
    if nearest:
        return f"unknown {kind} {value!r}. Did you mean {nearest[0]!r}?"
    return f"unknown {kind} {value!r}. " + (
        f"Use one of: {', '.join(allowed)}" if allowed else f"No {kind} exists."
    )
