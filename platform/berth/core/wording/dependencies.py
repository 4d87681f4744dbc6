"""Wording for dependencies between workloads, shared by the engine and the web pages."""

from collections.abc import Sequence
from typing import NamedTuple

SHOWN = 5  # maximum number of dependencies named in a sentence
VERBS = {"completed": "complete", "failed": "fail", "any": "end"}
PAST_VERBS = {"completed": "completed", "failed": "failed", "any": "ended"}


class AwaitedWorkload(NamedTuple):
    """Awaited workload, the state that it must reach, and a clause about its current status, or ""."""

    workload: str
    state: str
    status: str = ""


def describe_dependencies(awaited: Sequence[AwaitedWorkload]) -> str:
    """Return a phrase such as "vision/first to complete (running) and vision/second to end"."""
    parts = [
        f"{each.workload} to {VERBS[each.state]}{f' ({each.status})' if each.status else ''}"
        for each in awaited[:SHOWN]
    ]
    if len(awaited) > SHOWN:
        parts.append(f"{len(awaited) - SHOWN} more")
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
