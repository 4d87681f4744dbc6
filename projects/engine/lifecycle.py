"""Workload states and the allowed transitions between them. An evicted workload is pending again."""

from collections.abc import Mapping
from datetime import timedelta

# A run has made progress after this time, or once its program has stored a checkpoint.
PROGRESS_TIME = timedelta(minutes=30)

ENDED = frozenset({"completed", "failed", "cancelled"})
LIVE = frozenset({"pending", "reserved", "starting", "running", "stopping", "suspended"})

TRANSITIONS: Mapping[str, frozenset[str]] = {
    "pending": frozenset({"reserved", "starting", "suspended", "cancelled", "failed"}),
    "reserved": frozenset({"starting", "pending", "suspended", "cancelled", "failed"}),
    "starting": frozenset({"running", "stopping", "completed", "failed"}),
    "running": frozenset({"stopping", "completed", "failed"}),
    "stopping": frozenset({"pending", "suspended", "cancelled", "failed", "completed"}),
    "suspended": frozenset({"pending", "cancelled"}),
    "completed": frozenset(),
    "failed": frozenset(),
    "cancelled": frozenset(),
}


def is_transition_allowed(source: str, to: str) -> bool:
    return to in TRANSITIONS[source]
