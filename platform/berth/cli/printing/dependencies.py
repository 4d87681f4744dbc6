"""Print the dependencies and dependents of a workload or array."""

from typing import TYPE_CHECKING

from berth.cli.printing.columns import phase_style
from berth.cli.printing.output import Column, print_items, print_section

if TYPE_CHECKING:
    from berth.client.models.workloads import Dependencies, Dependency, Dependent


def print_dependencies(dependencies: "Dependencies") -> None:
    if dependencies.waits_for:
        print_section("Depends on")
        print_items(
            dependencies.waits_for,
            [
                Column("WORKLOAD", _format_reference),
                Column("REQUIRED", lambda d: d.state),
                Column("STATE", _describe_state, style=phase_style),
                Column("OUTCOME", lambda d: d.outcome.replace("_", " ")),
            ],
        )
    if dependencies.awaited_by:
        print_section("Required by")
        print_items(
            dependencies.awaited_by,
            [
                Column("WORKLOAD", _format_reference),
                Column("REQUIRES", lambda d: d.state),
                Column("STATE", lambda d: d.phase, style=phase_style),
            ],
        )


def _format_reference(entry: "Dependency | Dependent") -> str:
    tasks = " (same task)" if entry.tasks else ""
    return f"{entry.project}/{entry.name}{tasks}"


def _describe_state(dependency: "Dependency") -> str:
    if dependency.outcome == "hidden":
        return "hidden"
    if dependency.queue_position is not None:
        return f"{dependency.phase}, queue position {dependency.queue_position}"
    return dependency.phase or "not submitted"
