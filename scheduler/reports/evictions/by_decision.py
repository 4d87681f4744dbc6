"""Find the evictions made by scheduling cycles, so that decisions can link to them."""

from collections.abc import Iterable

from projects.actor import Actor
from scheduler.reports.evictions.rendering import KIND_TITLES
from scheduler.reports.selectors import evictions

RecordedEviction = tuple[int, str, str]  # eviction ID, rule, and title of the eviction kind


def evictions_by_decision(
    actor: Actor, cycles: Iterable[int]
) -> dict[tuple[int | None, str], RecordedEviction]:
    """Return the cycles' evictions that the user may see, keyed by cycle and `project/name`."""
    rows = evictions(actor).filter(cycle__in=list(cycles))
    values = rows.values_list("cycle", "project_name", "workload_name", "pk", "rule", "kind")
    return {
        (cycle, f"{project}/{name}"): (pk, rule, KIND_TITLES[kind])
        for cycle, project, name, pk, rule, kind in values
    }
