"""Find workloads and arrays that depend on a workload or array."""

import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

from django.db.models import Q, QuerySet

from berth.core.errors import Conflict
from berth.core.spec.sections.after import WorkloadReference
from projects import selectors
from projects.actor import Actor
from projects.models import ArrayState, Workload, WorkloadArray
from projects.models.workloads import ENDED_PHASES
from projects.services.dependencies.resolution import find_newest_objects, lock_dependencies

SHOWN = 100


@dataclass(frozen=True, slots=True)
class Dependent:
    """Pending workload or array, and the dependency state that it requires."""

    id: uuid.UUID
    project: str
    name: str
    is_array: bool
    phase: str
    state: str
    tasks: str | None


def find_dependents(actor: Actor, owner: Workload | WorkloadArray) -> list[Dependent]:
    """Return up to SHOWN visible workloads and arrays that depend on `owner`, ordered by project and name."""
    return list(islice(_dependents(owner, selectors.workloads(actor), selectors.arrays(actor)), SHOWN))


def reject_if_awaited(owner: Workload | WorkloadArray) -> None:
    """Raise Conflict if deleting an ended workload or array would block a workload that depends on it.

    Dependencies stay locked until the end of the transaction.
    """
    lock_dependencies()
    name = WorkloadReference(owner.project.name, owner.name)
    newest = find_newest_objects([name]).get(name)
    if newest is not None and newest.pk != owner.pk:
        return
    waiting = next(_dependents(owner, Workload.objects.all(), WorkloadArray.objects.all()), None)
    if waiting is not None:
        is_own = waiting.project == owner.project.name
        shown = f"{waiting.project}/{waiting.name}" if is_own else "A workload of another project"
        raise Conflict(
            f"{shown} depends on {owner.handle} and has not started yet. Delete {owner.name} once that "
            "workload has started."
        )


def _dependents(
    owner: Workload | WorkloadArray, workloads: QuerySet[Workload], arrays: QuerySet[WorkloadArray]
) -> Iterator[Dependent]:
    rows = workloads.filter(_dependents_condition(owner), run=0).exclude(phase__in=ENDED_PHASES)
    if isinstance(owner, WorkloadArray) or owner.array_id is None:
        rows = rows.filter(array__isnull=True)  # list arrays instead of their tasks
        active = arrays.filter(_dependents_condition(owner), state=ArrayState.ACTIVE)
    else:
        active = arrays.none()
    columns = ("pk", "project__name", "name")
    order = ("project__name", "name", "pk")
    for pk, project, name, phase, spec in rows.order_by(*order).values_list(*columns, "phase", "spec")[
        :SHOWN
    ]:
        state, tasks = _required_state(owner, project, spec["after"])
        yield Dependent(pk, project, name, False, phase, state, tasks)
    for pk, project, name, phase, spec in active.order_by(*order).values_list(*columns, "state", "spec")[
        :SHOWN
    ]:
        state, tasks = _required_state(owner, project, spec["after"])
        yield Dependent(pk, project, name, True, phase, state, tasks)


def _dependents_condition(owner: Workload | WorkloadArray) -> Q:
    short = Q(project=owner.project_id, spec__after__contains=[{"workload": owner.name}])
    return Q(spec__has_key="after") & (short | Q(spec__after__contains=[{"workload": owner.handle}]))


def _required_state(
    owner: Workload | WorkloadArray, project: str, section: Iterable[dict[str, str]]
) -> tuple[str, str | None]:
    names = {owner.handle} | ({owner.name} if project == owner.project.name else set())
    entry = next(entry for entry in section if entry["workload"] in names)
    return entry.get("state", "completed"), entry.get("tasks")
