"""Parse the progress of a bootstrap script, one JSON line per phase."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from pools.plugins.registry import SECRET_PLACEHOLDER

STATES = ("running", "done", "failed")
MESSAGE_MOST, PHASES_MOST = 4000, 64
UNREACHABLE = re.compile(
    "Failed to establish a new connection|NewConnectionError|name resolution|Name or service not known"
    "|Network is unreachable|Connection refused|ConnectTimeout|Read timed out|ProxyError|SSLError"
)
READY = "ready"  # the last line's phase
START = "start"  # the phase of the start script, which follows the environment's own


@dataclass(frozen=True, slots=True)
class Phase:
    phase: str
    state: str
    seconds: int = 0
    message: str = ""
    exit_code: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """Without an exit code where none is known, as phases of an environment have none."""
        told = asdict(self)
        if self.exit_code is None:
            del told["exit_code"]
        return told


@dataclass(frozen=True, slots=True)
class Progress:
    """`phases` in order, each as it is now."""

    phases: tuple[Phase, ...] = ()
    ready: bool = False

    @classmethod
    def of_rows(cls, rows: Iterable[Mapping[str, Any]]) -> "Progress":
        """As they are stored."""
        return cls(tuple(Phase(**row) for row in rows))

    @property
    def failed(self) -> Phase | None:
        return next((each for each in self.phases if each.state == "failed"), None)

    @property
    def why(self) -> str:
        """What failed, with the last line that it said."""
        failed = self.failed
        if failed is None:
            return ""
        lines = [line.strip() for line in failed.message.splitlines() if line.strip()]
        last = lines[-1] if lines else "no output"
        if failed.phase == START:
            return f"start script failed with exit code {failed.exit_code}: {last}"
        if UNREACHABLE.search(failed.message):  # of which pip's own last line says nothing
            last += " (network unreachable, see the output)"
        return f"environment could not be installed: {failed.phase}: {last}"


def progress_of(lines: Iterable[str], secrets: Iterable[str] = ()) -> Progress:
    """Of one run of the script; a line that is cut, or that something else wrote, is passed over."""
    found: dict[str, Phase] = {}
    ready = False
    for line in lines:
        phase = _phase(line, tuple(secrets))
        if phase is None:
            continue
        if phase.phase == READY:
            ready = True
        elif phase.phase in found or len(found) < PHASES_MOST:
            found[phase.phase] = phase
    return Progress(tuple(found.values()), ready)


def ended_outside(progress: Progress, said: str, secrets: Iterable[str] = ()) -> Progress:
    """With one more phase, for a script that failed and none of its phases did."""
    failed = Phase("script", "failed", 0, _hidden(said.strip(), secrets)[-MESSAGE_MOST:])
    return Progress((*progress.phases, failed))


def _hidden(message: str, secrets: Iterable[str]) -> str:
    for secret in secrets:
        message = message.replace(secret, SECRET_PLACEHOLDER) if secret else message
    return message


def _phase(line: str, secrets: tuple[str, ...]) -> Phase | None:
    try:
        told = json.loads(line)
        name, state = str(told["phase"]), str(told["state"])
        seconds, message = max(int(told["seconds"]), 0), str(told["message"])
    except (ValueError, KeyError, TypeError):
        return None
    if state not in STATES or not name:
        return None
    said = _hidden(message, secrets).replace("\0", "")[-MESSAGE_MOST:]
    return Phase(name[:80], state, min(seconds, 10**6), said)
