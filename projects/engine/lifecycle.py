"""The table of workload states and allowed moves.

"Preempted" is a count and a history, never a state: a workload that gave way is pending again.
"""

from collections.abc import Mapping

ENDED = frozenset({"completed", "failed", "cancelled"})
LIVE = frozenset({"pending", "reserved", "starting", "running", "stopping", "suspended"})

MOVES: Mapping[str, frozenset[str]] = {
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


def allowed(frm: str, to: str) -> bool:
    return to in MOVES[frm]


def sources(to: str) -> frozenset[str]:
    """The states from which one may come to `to`."""
    return frozenset(frm for frm, targets in MOVES.items() if to in targets)
