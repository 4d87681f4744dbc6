"""Texts for each kind of change: an instruction to the user, and a clause such as "it were preemptible"."""

from collections.abc import Callable, Mapping

from berth.core.values.amounts import MILLI
from berth.core.values.durations import format_duration
from berth.core.wording.dependencies import PAST_VERBS
from berth.core.wording.words import format_amount, format_count, format_mib, format_number
from scheduler.engine.model import NodeState
from scheduler.engine.smallest_change.change import Change, ChangeKind, require_integer

# Instruction and clause of each kind. `_values` describes the values in braces.
PHRASES: Mapping[ChangeKind, tuple[str, str]] = {
    ChangeKind.RESUMED: ("Resume the workload", "it were resumed"),
    ChangeKind.BACKOFF_OVER: (
        "Wait for the end of the restart delay ({before} s left)",
        "its restart delay were over ({before} s left)",
    ),
    ChangeKind.DEPENDENCY_ENDED: ("Wait until {name} has {ended}", "{name} had {ended}"),
    ChangeKind.PREEMPTION_DELAY_OVER: (
        "Wait for the end of the preemption delay ({before} s left)",
        "its preemption delay were over ({before} s left)",
    ),
    ChangeKind.PREEMPTIBLE: ("Make the workload preemptible", "it were preemptible"),
    ChangeKind.POOL_ALLOWED: ("Also allow pool {subject}", "it also allowed pool {subject}"),
    ChangeKind.LABEL_DROPPED: (
        "Remove the node selector {resource}={before} from role {subject}",
        "role {subject} did not require label {resource}={before}",
    ),
    ChangeKind.TAINT_TOLERATED: (
        "Tolerate the taint {resource} in role {subject}",
        "role {subject} tolerated taint {resource}",
    ),
    ChangeKind.GPU_MODEL_ALLOWED: (
        "Also allow the GPU model {after} in role {subject}",
        "role {subject} also allowed GPU model {after}",
    ),
    ChangeKind.TOPOLOGY_DROPPED: (
        "Allow more than one {resource}",
        "it did not have to run within one {resource}",
    ),
    ChangeKind.SPREAD_RAISED: (
        "Allow {after} replicas of role {subject} per node instead of {before}",
        "{after} replicas of role {subject} instead of {before} could run on a node",
    ),
    ChangeKind.REQUEST_LOWERED: (
        "Request for each {subject} replica: {amount}",
        "each replica of role {subject} requested {amount}",
    ),
    ChangeKind.MAX_RUNTIME_LOWERED: (
        "Set the max runtime to {duration}",
        "its maximum runtime were {duration}",
    ),
    ChangeKind.WORKLOAD_ENDED: ("End {name}", "{name} ended"),
    ChangeKind.PRIORITY_RAISED: (
        "Set the priority to {after} instead of {before}",
        "its priority were {after} instead of {before}",
    ),
    ChangeKind.LIMIT_RAISED: (
        "Give {owner} {subject} a limit of {amount}",
        "{owner} {subject} had a limit of {amount}",
    ),
    ChangeKind.QUOTA_RAISED: (
        "Give {owner} {subject} a quota of {amount}",
        "{owner} {subject} had a quota of {amount}",
    ),
    ChangeKind.MINIMUM_RUNTIME_OVER: (
        "Wait for the end of minimum runtimes ({before} s left)",
        "running workloads had passed their minimum runtime ({before} s left)",
    ),
    ChangeKind.NODE_OPENED: ("Uncordon node {subject}", "node {subject}{draining} were uncordoned"),
    ChangeKind.CONSOLIDATION_ENABLED: (
        "Enable consolidation in pool {pool}",
        "consolidation were enabled in pool {pool}",
    ),
    ChangeKind.MAX_MOVES_RAISED: (
        "Let consolidation in pool {pool} move {pods} at a time instead of {before}",
        "consolidation in pool {pool} could move {pods} at a time instead of {before}",
    ),
    ChangeKind.NODES_ADDED: ("Add {nodes} to pool {pool}", "pool {pool} had {more_nodes}"),
}
FEWER_REPLICAS = "Request {replicas}", "it had {replicas}"
LOWER_LIMIT = (
    "Limit each {subject} replica: {amount}",
    "each replica of role {subject} had a limit of {amount}",
)
WITH_AMOUNT = (ChangeKind.REQUEST_LOWERED, ChangeKind.LIMIT_RAISED, ChangeKind.QUOTA_RAISED)


def action_phrase(change: Change, project: str, display_name: Callable[[str], str] = str) -> str:
    """Return the change as an instruction, such as "Request 5 replicas instead of 6".

    `display_name` redacts workload names.
    """
    action, _ = _action_and_clause(change)
    return action.format_map(_values(change, project, display_name))


def change_clause(change: Change, project: str, display_name: Callable[[str], str] = str) -> str:
    """Return the change as a clause, such as "its priority were 5 instead of 3"."""
    _, clause = _action_and_clause(change)
    return clause.format_map(_values(change, project, display_name))


def _action_and_clause(change: Change) -> tuple[str, str]:
    if change.kind is ChangeKind.REQUEST_LOWERED and change.resource == "replicas":
        return FEWER_REPLICAS
    if change.kind is ChangeKind.REQUEST_LOWERED and change.resource.startswith("limit."):
        return LOWER_LIMIT
    return PHRASES[change.kind]


def _values(change: Change, project: str, display_name: Callable[[str], str]) -> Mapping[str, object]:
    subject, before, after = change.subject, change.before, change.after
    values: dict[str, object] = {
        "subject": subject, "resource": change.resource, "pool": change.pool,
        "before": before, "after": after,
        "name": display_name(subject), "owner": "project" if subject == project else "department",
        "draining": ", which is draining," if before == NodeState.DRAINING else "",
    }  # fmt: skip
    match change.kind:
        case ChangeKind.DEPENDENCY_ENDED:
            values["ended"] = PAST_VERBS[str(after)]
        case ChangeKind.MAX_RUNTIME_LOWERED:
            old = "" if before is None else f" instead of {format_duration(require_integer(before))}"
            values["duration"] = f"{format_duration(require_integer(after))}{old}"
        case ChangeKind.MAX_MOVES_RAISED:
            values["pods"] = format_count(require_integer(after), "pod")
        case ChangeKind.NODES_ADDED:
            added = require_integer(after)
            values["nodes"], values["more_nodes"] = (
                format_count(added, "node"),
                format_count(added, "more node"),
            )
        case kind if kind in WITH_AMOUNT:
            values["amount"] = _amount_phrase(change)
            values["replicas"] = _amount_phrase(change).replace("replica", f"{subject} replica", 1)
    return values


def _amount_phrase(change: Change) -> str:
    """Return the new amount compared with the old one, as in "5 GPUs instead of 4"."""
    resource = change.resource.removeprefix("limit.")
    before, after = require_integer(change.before), require_integer(change.after)
    if resource == "devices":
        resource, before, after = "gpu", before * MILLI, after * MILLI
    if not resource.endswith("memory_mib"):
        old = before if resource == "replicas" else before / MILLI
        return f"{format_amount(resource, after)} instead of {format_number(old)}"
    return f"{format_amount(resource, after)} instead of {format_mib(before)}"
