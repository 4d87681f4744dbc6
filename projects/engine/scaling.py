"""States of inference engines and scale requests, and the allowed transitions between them."""

from collections.abc import Mapping

FINAL = frozenset({"ACTIVE", "PARTIAL", "COMPLETED", "NOOP", "FAILED", "CANCELLED"})
ENDED = frozenset({"REMOVED", "FAILED"})
LEAVING = frozenset({"DRAINING", "REMOVING"})
PROGRESS = ("CREATING", "CONNECTING", "HEALTH_CHECKING", "WEIGHT_SYNCING", "READY", "ACTIVE")
RANK: Mapping[str, int] = {"CREATING": 0, "CONNECTING": 0} | {
    name: n for n, name in enumerate(PROGRESS[2:], 1)
}

SCALE_OUT_TRANSITIONS: Mapping[str, frozenset[str]] = {
    "PENDING": frozenset({"CREATING", "CONNECTING", "CANCELLED", "FAILED"}),
    "CREATING": frozenset({"HEALTH_CHECKING", "ROLLING_BACK"}),
    "CONNECTING": frozenset({"HEALTH_CHECKING", "ROLLING_BACK"}),
    "HEALTH_CHECKING": frozenset({"WEIGHT_SYNCING", "ROLLING_BACK"}),
    "WEIGHT_SYNCING": frozenset({"READY", "ROLLING_BACK"}),
    "READY": frozenset({"ACTIVE", "PARTIAL", "ROLLING_BACK"}),
    "ROLLING_BACK": frozenset({"CANCELLED", "FAILED"}),
} | {name: frozenset() for name in ("ACTIVE", "PARTIAL", "NOOP", "FAILED", "CANCELLED")}

SCALE_IN_TRANSITIONS: Mapping[str, frozenset[str]] = {
    "PENDING": frozenset({"DRAINING", "FAILED"}),
    "DRAINING": frozenset({"REMOVING", "FAILED"}),
    "REMOVING": frozenset({"COMPLETED", "FAILED"}),
} | {name: frozenset() for name in ("COMPLETED", "NOOP", "FAILED")}

ENGINE_TRANSITIONS: Mapping[str, frozenset[str]] = {
    "CREATING": frozenset({"HEALTH_CHECKING", "DRAINING", "REMOVING"}),
    "CONNECTING": frozenset({"HEALTH_CHECKING", "DRAINING", "REMOVING"}),
    "HEALTH_CHECKING": frozenset({"WEIGHT_SYNCING", "READY", "CREATING", "DRAINING", "REMOVING"}),
    "WEIGHT_SYNCING": frozenset({"READY", "CREATING", "DRAINING", "REMOVING"}),
    "READY": frozenset({"ACTIVE", "CREATING", "DRAINING", "REMOVING"}),
    "ACTIVE": frozenset({"CREATING", "DRAINING", "REMOVING"}),
    "DRAINING": frozenset({"REMOVING", "ACTIVE"}),
    "REMOVING": frozenset({"REMOVED", "FAILED"}),
    "REMOVED": frozenset(),
    "FAILED": frozenset(),
}


def allowed_request_transitions(direction: str) -> Mapping[str, frozenset[str]]:
    return SCALE_OUT_TRANSITIONS if direction == "scale_out" else SCALE_IN_TRANSITIONS
