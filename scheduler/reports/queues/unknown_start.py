"""Wording for unknown start times in tables."""

from collections.abc import Mapping

from scheduler.engine.forecast import (
    CAPACITY_FREE,
    EXCEEDS_WHOLE_LIMIT,
    EXCEEDS_WHOLE_QUOTA,
    NEVER_STARTS,
    PARTLY_PLACED,
    TOO_FAR_BACK,
    UNKNOWN_START,
)
from scheduler.engine.plan import Reason

BY_REASON: Mapping[Reason, str] = {
    Reason.SUSPENDED: "after it is resumed",
    Reason.DEPENDENCY_NOT_MET: "after its dependencies",
    Reason.FETCHING_CODE: "after its code is fetched",
    Reason.PROJECT_LIMIT: "when the project is below its limit",
    Reason.DEPARTMENT_LIMIT: "when the department is below its limit",
    Reason.CLUSTER_QUOTA: "when the cluster quota allows it",
    Reason.NON_PREEMPTIBLE_OVER_QUOTA: "when the project's quota allows it",
    Reason.DEPARTMENT_OVERSOLD: "when the department's quota allows it",
    Reason.BEHIND_RESERVATION: "after the workload ahead",
    Reason.WAITING_FOR_SCALE_UP: "when its nodes have booted",
}
SHORT: Mapping[str, str] = {
    **{UNKNOWN_START[reason]: text for reason, text in BY_REASON.items()},
    NEVER_STARTS: "never",
    EXCEEDS_WHOLE_LIMIT: "when the limit allows it",
    EXCEEDS_WHOLE_QUOTA: "when the quota allows it",
    TOO_FAR_BACK: "too far back to estimate",
    CAPACITY_FREE: "soon",
    PARTLY_PLACED: "when all replicas are placed",
}
UNDECLARED, MISSING_NODES = "workloads without a maximum runtime have ", "even if no workload ran, "
LATE_NODES, UNKNOWN_BOOT = (" is late", " are late"), "the boot time of "


def unknown_start_summary(reason: str) -> str:
    """Return a brief text for a workload without an expected start.

    `reason` is the stored sentence that explains why the start is unknown.
    """
    if reason.startswith(UNDECLARED):
        return "when other workloads end"
    if reason.startswith(MISSING_NODES):
        return "after nodes are added"
    if reason.endswith(LATE_NODES):
        return "when late nodes have booted"
    if reason.startswith(UNKNOWN_BOOT):
        return "when its nodes have booted"
    return SHORT.get(reason, "unknown")
