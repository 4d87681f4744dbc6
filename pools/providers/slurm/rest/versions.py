"""Negotiate the version of slurmrestd's API."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pools.providers.base import ProviderError, ProviderErrorKind
from pools.providers.slurm.rest.connection import Connection, Server
from pools.providers.slurm.rest.errors import reported_errors, response_error, unreadable_error

# API versions in order of preference. The tests run against real servers with each version.
UNDERSTOOD = ("v0.0.42", "v0.0.41", "v0.0.40", "v0.0.38", "v0.0.37")
# From this version on, numbers are objects, states are lists, and submissions have other keys.
FIRST_STRUCTURED = (0, 0, 39)
DESCRIPTION = "/openapi/v3"
SECONDS = 30.0
_PATH = re.compile(r"/(slurm|slurmdb)/(v\d+\.\d+\.\d+)/jobs/?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Api:
    """API version to use, and whether it also covers the accounting database."""

    version: str
    has_accounting: bool

    @property
    def is_structured(self) -> bool:
        return _version_numbers(self.version) >= FIRST_STRUCTURED


def negotiate_version(connection: Connection) -> Api:
    """Return the newest API version that both sides support. Raises ProviderError if there is none."""
    server = connection.server
    response = connection.call("GET", DESCRIPTION, seconds=SECONDS)
    answer = response.json()
    if response.status != 200:
        raise response_error(server, response, reported_errors(answer or {}))
    if answer is None or not isinstance(answer.get("paths"), dict):
        raise unreadable_error(server, "a description of its API")
    return choose_api(server, answer["paths"])


def choose_api(server: Server, paths: Mapping[str, Any]) -> Api:
    """Return the newest supported version among the API paths. Raises ProviderError if there is none."""
    matches = [match for path in paths if (match := _PATH.fullmatch(path))]
    offered = {kind: {match[2] for match in matches if match[1] == kind} for kind in ("slurm", "slurmdb")}
    version = next((version for version in UNDERSTOOD if version in offered["slurm"]), None)
    if version is None:
        listed = ", ".join(sorted(offered["slurm"], key=_version_numbers)) or "none for jobs"
        message = (
            f"{server.label} offers these API versions: {listed}. Berth supports "
            f"{', '.join(reversed(UNDERSTOOD))}. Start slurmrestd with a supported version (option -s or "
            "-d), or let the pool use Slurm's programs"
        )
        raise ProviderError(ProviderErrorKind.SETTINGS, message)
    return Api(version, version in offered["slurmdb"])


def _version_numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.removeprefix("v").split("."))
