"""Parse a bootstrap script's progress, which the script prints as lines of JSON."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from pools.plugins.registry import SECRET_PLACEHOLDER

PHASE_STATES = ("running", "done", "failed")
MESSAGE_MAX, PHASES_MAX = 4000, 64
NETWORK_ERRORS = re.compile(
    "Failed to establish a new connection|NewConnectionError|name resolution|Name or service not known"
    "|Network is unreachable|Connection refused|ConnectTimeout|Read timed out|ProxyError|SSLError"
)
READY = "ready"  # phase that a successful script reports in its last line
START = "start"  # phase in which the start script runs, after the environment's phases


@dataclass(frozen=True, slots=True)
class Phase:
    phase: str
    state: str
    seconds: int = 0
    message: str = ""
    exit_code: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the phase in the stored format. The exit code is omitted if there is none."""
        fields = asdict(self)
        if self.exit_code is None:
            del fields["exit_code"]
        return fields


@dataclass(frozen=True, slots=True)
class Progress:
    """Phases of a bootstrap script, in order."""

    phases: tuple[Phase, ...] = ()
    ready: bool = False

    @classmethod
    def from_rows(cls, rows: Iterable[Mapping[str, Any]]) -> "Progress":
        """Restore the progress from its stored phases."""
        return cls(tuple(Phase(**row) for row in rows))

    @property
    def failed_phase(self) -> Phase | None:
        return next((phase for phase in self.phases if phase.state == "failed"), None)

    @property
    def failure_message(self) -> str:
        """Reason why a phase failed, with its last line of output. Empty if no phase failed."""
        failed = self.failed_phase
        if failed is None:
            return ""
        lines = [line.strip() for line in failed.message.splitlines() if line.strip()]
        last = lines[-1] if lines else "no output"
        if failed.phase == START:
            return f"start script failed with exit code {failed.exit_code}: {last}"
        if NETWORK_ERRORS.search(failed.message):  # pip's last output line does not mention network errors
            last += " (network unreachable, see the output)"
        return f"environment could not be installed: {failed.phase}: {last}"


def parse_progress(lines: Iterable[str], secrets: Iterable[str] = ()) -> Progress:
    """Parse a bootstrap script's output, ignoring incomplete and unrelated lines."""
    phases: dict[str, Phase] = {}
    ready = False
    for line in lines:
        phase = _parse_phase(line, tuple(secrets))
        if phase is None:
            continue
        if phase.phase == READY:
            ready = True
        elif phase.phase in phases or len(phases) < PHASES_MAX:
            phases[phase.phase] = phase
    return Progress(tuple(phases.values()), ready)


def add_script_failure(progress: Progress, output: str, secrets: Iterable[str] = ()) -> Progress:
    """Add a phase that records a failure outside the script's own phases."""
    failed = Phase("script", "failed", 0, _redact_secrets(output.strip(), secrets)[-MESSAGE_MAX:])
    return Progress((*progress.phases, failed))


def _redact_secrets(message: str, secrets: Iterable[str]) -> str:
    for secret in secrets:
        message = message.replace(secret, SECRET_PLACEHOLDER) if secret else message
    return message


def _parse_phase(line: str, secrets: tuple[str, ...]) -> Phase | None:
    try:
        fields = json.loads(line)
        name, state = str(fields["phase"]), str(fields["state"])
        seconds, message = max(int(fields["seconds"]), 0), str(fields["message"])
    except (ValueError, KeyError, TypeError):
        return None
    if state not in PHASE_STATES or not name:
        return None
    text = _redact_secrets(message, secrets).replace("\0", "")[-MESSAGE_MAX:]
    return Phase(name[:80], state, min(seconds, 10**6), text)
