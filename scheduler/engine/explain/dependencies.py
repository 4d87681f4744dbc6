"""Compute the figures that explain why a workload is waiting for its dependencies."""

from collections.abc import Sequence

from berth.core.wording.dependencies import AwaitedWorkload, describe_dependencies
from scheduler.engine.model import Dependency
from scheduler.engine.plan import Numbers


def dependency_numbers(unmet: Sequence[Dependency]) -> Numbers:
    """Return the figures for a blocker about unmet dependencies.

    If there is only one dependency, its `state` is included.
    """
    numbers: dict[str, int | float | str | None] = {
        "after": ", ".join(dependency.workload for dependency in unmet),
        "count": len(unmet),
        "awaited": describe_dependencies(
            [
                AwaitedWorkload(dependency.workload, dependency.state, dependency.status)
                for dependency in unmet
            ]
        ),
    }
    if len(unmet) == 1:
        numbers["state"] = unmet[0].state
    return numbers
