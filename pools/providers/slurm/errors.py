"""Classify Slurm's error messages."""

import re

from pools.providers.base import ProviderError, ProviderErrorKind
from pools.providers.commands import CommandResult

Kind = ProviderErrorKind
# The first entry with a phrase in the lowercased output determines the error's kind.
MARKS: tuple[tuple[Kind, tuple[str, ...]], ...] = (
    (Kind.TIMEOUT, (
        "unable to contact slurm controller", "timed out", "zero bytes were transmitted",
        "connection refused", "temporarily unable", "communication connection failure", "in standby mode",
        "problem talking to the database", "unable to connect to database",
    )),
    (Kind.CREDENTIALS, (
        "permission denied", "access denied", "authentication", "munge", "invalid user",
    )),
    (Kind.QUOTA, ("submit limit", "submitlimit", "accounting/qos policy", "submitjoblimit")),
    (Kind.SETTINGS, (
        "invalid", "not available", "not permitted", "unrecognized option", "configuration source",
        "not found", "more processors requested", "no such file", "read-only file system",
    )),
)  # fmt: skip
NO_CONFIGURATION = "could not establish a configuration source"
# Function name in front of a message, such as "fetch_config: ".
FUNCTION = re.compile(r"^_?[a-z0-9]+(?:_[a-z0-9]+)+: ")


def has_no_accounting(result: CommandResult) -> bool:
    """Return whether sacct failed because it is missing or the cluster has no accounting database."""
    return "accounting storage is disabled" in result.stderr or _is_program_missing("sacct", result)


def _is_program_missing(program: str, result: CommandResult) -> bool:
    return f"{program}: not found" in result.stderr or f"{program}: command not found" in result.stderr


def program_error(program: str, result: CommandResult, machine_name: str) -> ProviderError:
    """Return the error for a failed program, with Slurm's message or a clearer one."""
    if _is_program_missing(program, result):
        message = (
            f"{program} is not installed on {machine_name}, or not on its PATH. Set provider_settings.bin to "
            "the directory of Slurm's programs"
        )
        return ProviderError(Kind.SETTINGS, message)
    if NO_CONFIGURATION in result.stderr.lower():
        message = (
            f"{program} cannot find a slurm.conf or a Slurm controller on {machine_name}. "
            "Install the cluster's slurm.conf there"
        )
        return ProviderError(Kind.SETTINGS, message)
    message = clean_output(result.stderr) or f"{program} exited with {result.exit_code}"
    return ProviderError(classify_failure(message), message)


def clean_output(errors: str) -> str:
    """Join the lines of stderr into one line, without the names of programs and functions."""
    lines = [line.strip() for line in errors.splitlines() if line.strip()]
    texts = [FUNCTION.sub("", _strip_error_prefix(line)) for line in lines]
    return "; ".join(dict.fromkeys(texts))[:1000]


def _strip_error_prefix(line: str) -> str:
    for mark in ("error: ", "fatal: ", "allocation failure: "):
        if mark in line:
            return line.partition(mark)[2]
    return line


def classify_failure(message: str) -> Kind:
    """Return the kind of error for a message from Slurm."""
    text = message.lower()
    return next((kind for kind, marks in MARKS if any(mark in text for mark in marks)), Kind.BROKEN)
