"""Current statuses of a workload's dependencies, redacted for one user."""

import uuid
from dataclasses import dataclass
from typing import Any

from berth.core.spec import SpecError, parse_workload
from berth.core.spec.sections.after import Dependency
from berth.core.wording.dependencies import AwaitedWorkload, describe_dependencies
from projects.access import visible_projects
from projects.actor import Actor
from projects.models import Phase, Workload, WorkloadArray
from projects.services.dependencies.resolution import (
    NOT_SUBMITTED,
    ResolvedDependency,
    find_newest_objects,
    resolve_dependencies,
)

HIDDEN = "hidden"


@dataclass(frozen=True, slots=True)
class DependencyStatus:
    """Dependency with the current state of the awaited workload or array.

    `outcome` is met, waiting, never_met or hidden. `id` and `phase` are None if it is hidden or does not
    exist.
    """

    project: str
    name: str
    state: str  # state that the dependency requires
    tasks: str | None
    outcome: str
    id: uuid.UUID | None
    is_array: bool
    phase: str | None
    queue_position: int | None

    @property
    def status(self) -> str:
        """Phase and queue position as a clause, or an empty string if they are hidden."""
        if self.outcome == HIDDEN:
            return ""
        if self.queue_position is not None:
            return f"{self.phase}, queue position {self.queue_position}"
        return self.phase or NOT_SUBMITTED


def dependency_statuses(actor: Actor, owner: Workload | WorkloadArray) -> list[DependencyStatus]:
    """Return the status of each dependency, in document order.

    Once the workload has started, all dependencies count as met.
    """
    dependencies = _stored_dependencies(owner.spec)
    if not dependencies:
        return []
    project = owner.project.name
    newest = find_newest_objects([dependency.workload_reference(project) for dependency in dependencies])
    resolved = resolve_dependencies(project, dependencies, newest)
    others = {each.awaited.project for each in resolved} - {project}
    visible = {project}
    if others:
        visible |= set(visible_projects(actor).filter(name__in=others).values_list("name", flat=True))
    positions = _queue_positions(resolved)
    has_started = isinstance(owner, Workload) and owner.run > 0
    return [
        _build_status(
            dependency, each, positions, is_visible=each.awaited.project in visible, has_started=has_started
        )
        for dependency, each in zip(dependencies, resolved, strict=True)
    ]


def current_waiting_message(actor: Actor, workload: Workload) -> str | None:
    """Return a message about the unmet dependencies and their current states, or None if all are met."""
    waiting = [each for each in dependency_statuses(actor, workload) if each.outcome != "met"]
    awaited = [AwaitedWorkload(f"{each.project}/{each.name}", each.state, each.status) for each in waiting]
    return f"Waiting for {describe_dependencies(awaited)}." if awaited else None


def _stored_dependencies(document: Any) -> tuple[Dependency, ...]:
    """Return the dependencies in a stored document, which may no longer be valid."""
    if not isinstance(document, dict) or "after" not in document:
        return ()
    try:
        return parse_workload(document).after
    except SpecError:
        return ()


def _queue_positions(resolved: list[ResolvedDependency]) -> dict[uuid.UUID, int]:
    pending = [each.newest.pk for each in resolved if each.newest and each.newest.phase == Phase.PENDING]
    if not pending:
        return {}
    rows = Workload.objects.filter(pk__in=pending, held=False).values_list(
        "pk", "explanation__queue_position"
    )
    return {pk: position for pk, position in rows if position is not None}


def _build_status(
    dependency: Dependency,
    resolved: ResolvedDependency,
    positions: dict[uuid.UUID, int],
    *,
    is_visible: bool,
    has_started: bool,
) -> DependencyStatus:
    newest = resolved.newest if is_visible else None
    if has_started:
        outcome = "met"
    elif not is_visible:
        outcome = HIDDEN
    else:
        outcome = "met" if resolved.is_met else "never_met" if resolved.is_unreachable else "waiting"
    return DependencyStatus(
        project=resolved.awaited.project,
        name=resolved.awaited.name,
        state=dependency.state,
        tasks=dependency.tasks,
        outcome=outcome,
        id=None if newest is None else newest.pk,
        is_array=newest is not None and newest.is_array,
        phase=None if newest is None else newest.phase,
        queue_position=None if newest is None else positions.get(newest.pk),
    )
