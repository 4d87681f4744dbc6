"""Actions that apply to a workload or array, and the reasons why other actions do not."""

from typing import Any

from projects.access import Action, may
from projects.actor import Actor
from projects.models import ArrayState, Phase, Workload, WorkloadArray
from projects.models.workloads import ENDED_PHASES
from projects.services.arrays import TaskCounts

BULK_ACTIONS = ("suspend", "resume", "retry", "resubmit", "cancel", "delete")
BULK_ACTION_TITLES = [(action_name, action_name.capitalize()) for action_name in BULK_ACTIONS]
ENDED, SUSPENDED, STOPPING = "Already ended", "Already suspended", "Already stopping"
NOT_SUSPENDED, LIVE = "Not suspended", "Not yet ended"
NOT_AN_ARRAY, ENDED_NO_ARRAY = "Not an array", "Not an array; resubmit it instead"
NO_FAILURES = "No failed tasks"
TASK, ARRAY = "An array task; retry it instead", "An array; retry it or edit a copy instead"
NOT_ALLOWED = "Not allowed by your role"


def allowed_actions(workload: Workload) -> list[str]:
    """Return the names of the actions that the workload's phase allows."""
    if workload.phase in ENDED_PHASES:
        return ["delete"]
    if _is_suspended(workload):
        return ["resume", "cancel"]
    return ["suspend", "cancel"]


def set_bulk_actions(
    actor: Actor, row: Any, target: Workload | WorkloadArray, counts: TaskCounts | None = None
) -> None:
    """Set the row's bulk actions, and whether the user may control `target` and submit a copy of it.

    `target` is the row's workload or array, and `counts` contains the array's task counts.
    """
    target.project = row.project
    row.bulk_actions = " ".join(bulk_actions(actor, target, counts or TaskCounts()))
    row.is_operable = may(actor, Action.OPERATE, target)
    row.is_copyable = may(actor, Action.SUBMIT, row.project)


def bulk_actions(actor: Actor, row: Workload | WorkloadArray, counts: TaskCounts) -> list[str]:
    """Return the bulk actions of the workload list that apply to the row.

    `counts` contains the array's task counts.
    """
    return [action for action in BULK_ACTIONS if not inapplicable_reason(actor, action, row, counts)]


def inapplicable_reason(actor: Actor, action: str, row: Workload | WorkloadArray, counts: TaskCounts) -> str:
    """Return why an action does not apply to a workload or array, or an empty string if it does."""
    reason = (
        _workload_obstacle(action, row) if isinstance(row, Workload) else _array_obstacle(action, row, counts)
    )
    is_allowed = (
        may(actor, Action.SUBMIT, row.project) if action == "resubmit" else may(actor, Action.OPERATE, row)
    )
    return reason or ("" if is_allowed else NOT_ALLOWED)


def _workload_obstacle(action: str, workload: Workload) -> str:
    has_ended = workload.phase in ENDED_PHASES
    if action == "retry":
        return ENDED_NO_ARRAY if has_ended else NOT_AN_ARRAY
    if action == "resubmit" and workload.array_id is not None:
        return TASK
    if action in ("delete", "resubmit"):
        return "" if has_ended else LIVE
    if action == "resume":
        return "" if _is_suspended(workload) else NOT_SUSPENDED
    if has_ended:
        return ENDED
    if workload.phase == Phase.STOPPING and workload.next_phase in ENDED_PHASES:
        return STOPPING
    return SUSPENDED if action == "suspend" and _is_suspended(workload) else ""


def _array_obstacle(action: str, array: WorkloadArray, counts: TaskCounts) -> str:
    if action == "retry":
        return "" if counts.failed else NO_FAILURES
    if action == "resubmit":
        return ARRAY
    has_ended = array.state != ArrayState.ACTIVE
    if action == "delete":
        return "" if has_ended else LIVE
    if action == "resume":
        return "" if counts.suspended else NOT_SUSPENDED
    if has_ended:
        return ENDED
    if action == "suspend" and counts.live == counts.suspended + counts.stopping:
        return SUSPENDED if counts.suspended else STOPPING
    return ""


def _is_suspended(workload: Workload) -> bool:
    """Return whether the workload is suspended, or will be once it has stopped."""
    return Phase.SUSPENDED in (workload.phase, workload.next_phase)
