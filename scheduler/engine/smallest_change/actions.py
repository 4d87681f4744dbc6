"""Phrases that tell the user how to make the smallest change, such as "Request 5 replicas instead of 6"."""

from collections.abc import Callable

from berth.core.values.durations import format_duration
from berth.core.wording.dependencies import PAST_VERBS
from berth.core.wording.words import format_count
from scheduler.engine.smallest_change.change import Change, ChangeKind, require_integer
from scheduler.engine.smallest_change.sentences import amount_phrase, pool_maximum_note


def action_phrase(change: Change, project: str, display_name: Callable[[str], str] = str) -> str:
    """Return the change as an instruction to the user, for a workload in `project`.

    `display_name` redacts workload names.
    """
    return _workload_action(change, display_name) or _role_action(change) or _owner_action(change, project)


def _workload_action(change: Change, display_name: Callable[[str], str]) -> str:
    subject, before, after = change.subject, change.before, change.after
    match change.kind:
        case ChangeKind.RESUMED:
            return "Resume the workload"
        case ChangeKind.BACKOFF_OVER:
            return f"Wait for the end of the restart delay ({before} s left)"
        case ChangeKind.DEPENDENCY_ENDED:
            return f"Wait until {display_name(subject)} has {PAST_VERBS[str(after)]}"
        case ChangeKind.PREEMPTION_DELAY_OVER:
            return f"Wait for the end of the preemption delay ({before} s left)"
        case ChangeKind.PREEMPTIBLE:
            return "Make the workload preemptible"
        case ChangeKind.POOL_ALLOWED:
            return f"Also allow pool {subject}"
        case ChangeKind.TOPOLOGY_DROPPED:
            return f"Allow more than one {change.resource}"
        case ChangeKind.MAX_RUNTIME_LOWERED:
            old = "" if before is None else f" instead of {format_duration(require_integer(before))}"
            return f"Set the max runtime to {format_duration(require_integer(after))}{old}"
        case ChangeKind.PRIORITY_RAISED:
            return f"Set the priority to {after} instead of {before}"
        case ChangeKind.WORKLOAD_ENDED:
            return f"End {display_name(subject)}"
    return ""


def _role_action(change: Change) -> str:
    role, before, after = change.subject, change.before, change.after
    match change.kind:
        case ChangeKind.LABEL_DROPPED:
            return f"Remove the node selector {change.resource}={before} from role {role}"
        case ChangeKind.TAINT_TOLERATED:
            return f"Tolerate the taint {change.resource} in role {role}"
        case ChangeKind.GPU_MODEL_ALLOWED:
            return f"Also allow the GPU model {after} in role {role}"
        case ChangeKind.SPREAD_RAISED:
            return f"Allow {after} replicas of role {role} per node instead of {before}"
        case ChangeKind.REQUEST_LOWERED if change.resource == "replicas":
            return f"Request {amount_phrase(change).replace('replica', f'{role} replica', 1)}"
        case ChangeKind.REQUEST_LOWERED:
            verb = "Limit each" if change.resource.startswith("limit.") else "Request for each"
            return f"{verb} {role} replica: {amount_phrase(change)}"
    return ""


def _owner_action(change: Change, project: str) -> str:
    """Return what an admin has to do to a quota, a pool or a node."""
    subject, before, after = change.subject, change.before, change.after
    match change.kind:
        case ChangeKind.LIMIT_RAISED | ChangeKind.QUOTA_RAISED:
            owner = "project" if subject == project else "department"
            bound = "limit" if change.kind is ChangeKind.LIMIT_RAISED else "quota"
            return f"Give {owner} {subject} a {bound} of {amount_phrase(change)}"
        case ChangeKind.MINIMUM_RUNTIME_OVER:
            return f"Wait for the end of minimum runtimes ({before} s left)"
        case ChangeKind.NODE_OPENED:
            return f"Uncordon node {subject}"
        case ChangeKind.CONSOLIDATION_ENABLED:
            return f"Enable consolidation in pool {change.pool}"
        case ChangeKind.MAX_MOVES_RAISED:
            pods = format_count(require_integer(after), "pod")
            return f"Let consolidation in pool {change.pool} move {pods} at a time instead of {before}"
    added = require_integer(after)
    return f"Add {format_count(added, 'node')} to pool {change.pool}{pool_maximum_note(before, added)}"
