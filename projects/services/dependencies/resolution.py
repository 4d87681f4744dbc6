"""Resolve dependencies to workloads and arrays, and check whether they have reached the required state.

A name refers to the newest workload or array with that name.
"""

import uuid
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from django.db import connection
from django.db.models import BooleanField, Q, Value

from berth.core.spec.sections.after import Dependency, WorkloadReference
from berth.core.wording.dependencies import VERBS
from projects.models import Phase, Workload, WorkloadArray
from projects.models.workloads import ENDED_PHASES

NOT_SUBMITTED = "not submitted"
LOCK = "SELECT pg_advisory_xact_lock(1650811491)"


@dataclass(frozen=True, slots=True)
class NewestObject:
    """Newest workload or array with a given name. For an array, `phase` is its state."""

    pk: uuid.UUID
    phase: str
    is_array: bool


@dataclass(frozen=True, slots=True)
class ResolvedDependency:
    """Dependency, and the newest workload or array with its name. `newest` is None if there is none."""

    awaited: WorkloadReference
    state: str
    newest: NewestObject | None

    @property
    def phase(self) -> str | None:
        return None if self.newest is None else self.newest.phase

    @property
    def is_met(self) -> bool:
        return self.phase in ENDED_PHASES if self.state == "any" else self.phase == self.state

    @property
    def is_unreachable(self) -> bool:
        """Return whether the awaited workload has ended in a state other than the required one."""
        return self.phase in ENDED_PHASES and not self.is_met


def lock_dependencies() -> None:
    """Serialize transactions that add dependencies, or delete workloads that others may depend on.

    Without this lock, two submissions could form a cycle.
    """
    with connection.cursor() as cursor:
        cursor.execute(LOCK)


def find_newest_objects(names: Collection[WorkloadReference]) -> dict[WorkloadReference, NewestObject]:
    """Return the newest workload or array for each name that exists, using one query."""
    if not names:
        return {}
    by_project: dict[str, list[str]] = defaultdict(list)
    for project, name in names:
        by_project[project].append(name)
    filters = Q()
    for project, own in by_project.items():
        filters |= Q(project__name=project, name__in=own)
    columns = ("submitted_at", "pk", "project__name", "name")
    flag = BooleanField()
    workloads = Workload.objects.filter(filters).order_by()
    arrays = WorkloadArray.objects.filter(filters).order_by()
    rows = workloads.values_list(*columns, "phase", Value(False, flag)).union(
        arrays.values_list(*columns, "state", Value(True, flag)), all=True
    )
    return {
        WorkloadReference(project, name): NewestObject(pk, phase, is_array)
        for _, pk, project, name, phase, is_array in rows.order_by("submitted_at", "pk")
    }


def resolve_dependencies(
    project: str, dependencies: Iterable[Dependency], newest: Mapping[WorkloadReference, NewestObject]
) -> list[ResolvedDependency]:
    """Return the resolved dependencies of a workload in `project`."""
    resolved = []
    for dependency in dependencies:
        awaited = dependency.workload_reference(project)
        resolved.append(ResolvedDependency(awaited, dependency.state, newest.get(awaited)))
    return resolved


def unmeetable_dependency_message(project: str, resolved: Collection[ResolvedDependency]) -> str | None:
    """Return why a workload in `project` can never start, or None if its dependencies can still be met."""
    for each in resolved:
        if each.is_unreachable:
            if each.awaited.project != project:
                return f"Cancelled because {each.awaited} can no longer {VERBS[each.state]}."
            was = "was " if each.phase == Phase.CANCELLED else ""
            return (
                f"Cancelled because {each.awaited} {was}{each.phase} and can no longer {VERBS[each.state]}."
            )
    return None
