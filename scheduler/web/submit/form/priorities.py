"""Wording of priorities in the form, in lists of changes and in predictions."""

from collections.abc import Mapping

from berth.core.values.priorities import PRIORITIES, default_priority, is_preemptible_by_default


def priority_label(priority: int, kind: str) -> str:
    """Return the priority with its name for a kind of workload, such as "125 (high)"."""
    names = {value: name.replace("-", " ") for name, value in PRIORITIES.items()}
    names[default_priority(kind)] = "default"
    return f"{priority} ({names[priority]})" if priority in names else str(priority)


def priority_choices(kind: str) -> tuple[tuple[str, str], ...]:
    """Return the named priorities with their labels, lowest first. The default has an empty value."""
    default = default_priority(kind)
    named = {value: name for name, value in PRIORITIES.items()} | {default: ""}
    return tuple(
        (named[value], f"{priority_label(value, kind)}{_preemptibility_suffix(value)}")
        for value in sorted(named)
    )


def priority_synonyms(kind: str) -> Mapping[str, str]:
    """Return the form's choice for every spelling of a priority, such as "high" for "125"."""
    default = default_priority(kind)
    by_name = {name: "" if value == default else name for name, value in PRIORITIES.items()}
    by_number = {str(PRIORITIES[name]): choice for name, choice in by_name.items()}
    return {**by_name, **by_number, str(default): ""}


def _preemptibility_suffix(priority: int) -> str:
    return "" if is_preemptible_by_default(priority) else ", non-preemptible"
