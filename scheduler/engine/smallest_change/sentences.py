"""Sentences about the smallest change that would start a workload."""

from collections.abc import Callable, Sequence

from berth.core.wording.words import format_count
from scheduler.engine.smallest_change.change import ChangeKind
from scheduler.engine.smallest_change.phrases import change_clause
from scheduler.engine.smallest_change.search import Effects, Outcome, SmallestChange

NAMED_MAX = 3  # maximum number of affected workloads named in a sentence
# Start of the sentence about a smaller request that affects no other workload.
WITHOUT_EVICTIONS = " Without evictions, it would start now if "


def change_sentence(result: SmallestChange, project: str, display_name: Callable[[str], str] = str) -> str:
    """Return a sentence that describes the result of a search for a workload of `project`.

    `display_name` redacts workload names.
    """
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
    clause = change_clause(result.change, project, display_name)
    if result.outcome is Outcome.SCHEDULABLE:
        return f"The workload could start once resources are free if {clause}."
    alternative = ""
    if result.without_evictions is not None:
        alternative = f"{WITHOUT_EVICTIONS}{change_clause(result.without_evictions, project, display_name)}."
    effects = _effects_sentence(result.effects, display_name)
    return f"The workload would start now if {clause}.{effects}{alternative}"


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
