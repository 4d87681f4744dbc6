"""Sentences about the smallest change that would start a workload."""

from collections.abc import Callable, Sequence

from berth.core.values.amounts import MILLI
from berth.core.values.durations import format_duration
from berth.core.wording.dependencies import PAST_VERBS
from berth.core.wording.words import format_amount, format_count, format_mib, format_number
from scheduler.engine.model import NodeState
from scheduler.engine.smallest_change.change import Change, ChangeKind, Value, require_integer
from scheduler.engine.smallest_change.search import Effects, Outcome, SmallestChange

NAMED_MAX = 3  # maximum number of affected workloads named in a sentence


def sentence_about_change(
    result: SmallestChange, project: str, display_name: Callable[[str], str] = str
) -> str:
    """Return the sentence for a workload of `project`. `display_name` redacts workload names."""
    match result.outcome:
        case Outcome.NO_CHANGE:
            return "No single change would start the workload now."
        case Outcome.UNDECIDED:
            return "The search for a change that would start the workload now was not completed."
        case Outcome.NOT_NEEDED:
            return "The workload needs no change: the next cycle starts it or reserves capacity for it."
    assert result.change is not None
    if result.change.kind is ChangeKind.BACKOFF_OVER:  # a backoff ends on its own, without a change
        left = result.change.before
        effects = _effects_sentence(result.effects, display_name)
        return f"The workload would start when its restart delay ends, in {left} s.{effects}"
    clause = _change_clause(result.change, project, display_name)
    if result.outcome is Outcome.SCHEDULABLE:
        return f"The workload could start once resources are free if {clause}."
    return f"The workload would start now if {clause}.{_effects_sentence(result.effects, display_name)}"


def _effects_sentence(effects: Effects, display_name: Callable[[str], str]) -> str:
    verbs = (("evict", effects.evicted), ("scale down", effects.scaled_down), ("move", effects.moved))
    parts = [f"{verb} {_list_workloads(names, display_name)}" for verb, names in verbs if names]
    return f" This would {' and '.join(parts)}." if parts else ""


def _list_workloads(names: Sequence[str], display_name: Callable[[str], str]) -> str:
    """Return at most three visible names and the number of other workloads."""
    visible = [name for name in names if display_name(name) == name][:NAMED_MAX]
    others = len(names) - len(visible)
    if others and len(names) == 1:
        return display_name(names[0])
    more = [format_count(others, "other workload" if visible else "workload")] if others else []
    *words, last = *visible, *more
    return f"{', '.join(words)} and {last}" if words else last


def _change_clause(change: Change, project: str, display_name: Callable[[str], str]) -> str:
    """Return the change as a clause, such as "its priority were 5 instead of 3"."""
    subject, before, after = change.subject, change.before, change.after
    match change.kind:
        case ChangeKind.RESUMED:
            return "it were resumed"
        case ChangeKind.DEPENDENCY_ENDED:
            return f"{display_name(subject)} had {PAST_VERBS[str(after)]}"
        case ChangeKind.PREEMPTION_DELAY_OVER:
            return f"its preemption delay were over ({before} s left)"
        case ChangeKind.PREEMPTIBLE:
            return "it were preemptible"
        case ChangeKind.POOL_ALLOWED:
            return f"it also allowed pool {subject}"
        case ChangeKind.TOPOLOGY_DROPPED:
            return f"it did not have to run within one {change.resource}"
        case ChangeKind.MAX_RUNTIME_LOWERED:
            old = "" if before is None else f" instead of {format_duration(require_integer(before))}"
            return f"its maximum runtime were {format_duration(require_integer(after))}{old}"
        case ChangeKind.PRIORITY_RAISED:
            return f"its priority were {after} instead of {before}"
        case ChangeKind.WORKLOAD_ENDED:
            return f"{display_name(subject)} ended"
        case ChangeKind.LIMIT_RAISED | ChangeKind.QUOTA_RAISED:
            owner = "project" if subject == project else "department"
            bound = "limit" if change.kind is ChangeKind.LIMIT_RAISED else "quota"
            return f"{owner} {subject} had a {bound} of {amount_phrase(change)}"
    return _role_clause(change) or _pool_clause(change)


def _role_clause(change: Change) -> str:
    role, before, after = f"role {change.subject}", change.before, change.after
    match change.kind:
        case ChangeKind.LABEL_DROPPED:
            return f"{role} did not require label {change.resource}={before}"
        case ChangeKind.TAINT_TOLERATED:
            return f"{role} tolerated taint {change.resource}"
        case ChangeKind.GPU_MODEL_ALLOWED:
            return f"{role} also allowed GPU model {after}"
        case ChangeKind.SPREAD_RAISED:
            return f"{after} replicas of {role} instead of {before} could run on a node"
        case ChangeKind.REQUEST_LOWERED if change.resource == "replicas":
            return f"it had {amount_phrase(change).replace('replica', f'{change.subject} replica', 1)}"
        case ChangeKind.REQUEST_LOWERED:
            verb = "had a limit of" if change.resource.startswith("limit.") else "requested"
            return f"each replica of {role} {verb} {amount_phrase(change)}"
    return ""


def _pool_clause(change: Change) -> str:
    pool, before, after = f"pool {change.pool}", change.before, change.after
    match change.kind:
        case ChangeKind.MINIMUM_RUNTIME_OVER:
            return f"running workloads had passed their minimum runtime ({before} s left)"
        case ChangeKind.NODE_OPENED:
            draining = ", which is draining," if before == NodeState.DRAINING else ""
            return f"node {change.subject}{draining} were uncordoned"
        case ChangeKind.CONSOLIDATION_ENABLED:
            return f"consolidation were enabled in {pool}"
        case ChangeKind.MAX_MOVES_RAISED:
            pods = _format_count(after, "pod")
            return f"consolidation in {pool} could move {pods} at a time instead of {before}"
    return (
        f"{pool} had {_format_count(after, 'more node')}{pool_maximum_note(before, require_integer(after))}"
    )


def pool_maximum_note(allowed: Value, added: int) -> str:
    """Return a note on how many of the added nodes the pool's maximum allows, or "" if it allows all of
    them.
    """
    if allowed is None or require_integer(allowed) >= added:
        return ""
    return f" (its maximum allows only {allowed})" if allowed else " (it is at its maximum)"


def amount_phrase(change: Change) -> str:
    """Return the new amount with its unit and the old amount, as in "5 GPUs instead of 4"."""
    resource = change.resource.removeprefix("limit.")
    before, after = require_integer(change.before), require_integer(change.after)
    if resource == "devices":
        resource, before, after = "gpu", before * MILLI, after * MILLI
    if not resource.endswith("memory_mib"):
        old = before if resource == "replicas" else before / MILLI
        return f"{format_amount(resource, after)} instead of {format_number(old)}"
    return f"{format_amount(resource, after)} instead of {format_mib(before)}"


def _format_count(value: Value, noun: str) -> str:
    return format_count(require_integer(value), noun)
