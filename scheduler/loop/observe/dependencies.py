"""Dependencies that have not completed yet."""

import uuid
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from django.db.models import Q

from projects.models import Phase, Workload, WorkloadArray
from scheduler.engine import model
from scheduler.loop.observe.mirror import WorkloadRow
from scheduler.loop.observe.queues import Queues
from scheduler.loop.observe.specs import NOTHING_TO_RUN, ParsedSpec


@dataclass(frozen=True, slots=True)
class Dependencies:
    """Unmet dependencies by workload ID, and placeholders for dependencies that are not in the snapshot.

    `unsubmitted` lists the dependencies that were never submitted, for example because of a typo.
    A dependency that failed, was cancelled, is suspended or was never submitted cannot complete
    without intervention, so a suspended placeholder represents it.
    """

    unmet: Mapping[uuid.UUID, tuple[str, ...]]
    unsubmitted: Mapping[uuid.UUID, tuple[str, ...]]
    placeholders: tuple[model.Workload, ...]


NO_DEPENDENCIES = Dependencies({}, {}, ())


def find_dependencies(
    rows: Collection[WorkloadRow],
    specs: Mapping[uuid.UUID, ParsedSpec],
    visible: Collection[str],
    queues: Queues,
) -> Dependencies:
    """Return the dependencies of rows that have any.

    `visible` contains the engine's names for workloads in the snapshot.
    """
    dependents = [(row, spec.depends_on) for row in rows if (spec := specs[row.pk].spec) is not None]
    newest = _newest_phases(dependents)
    unmet: dict[uuid.UUID, tuple[str, ...]] = {}
    unsubmitted: dict[uuid.UUID, tuple[str, ...]] = {}
    placeholders: dict[str, model.Workload] = {}
    for row, names in dependents:
        project = queues.projects[row.project_id]
        missing = [name for name in names if newest.get((row.project_id, name)) != Phase.COMPLETED]
        unmet[row.pk] = tuple(f"{project}/{name}" for name in missing)
        unsubmitted[row.pk] = tuple(
            f"{project}/{name}" for name in missing if (row.project_id, name) not in newest
        )
        for handle in unmet[row.pk]:
            if handle not in visible:
                placeholders[handle] = _placeholder(handle, project, tuple(row.pools))
    return Dependencies(unmet, unsubmitted, tuple(placeholders[handle] for handle in sorted(placeholders)))


def _newest_phases(dependents: Collection[tuple[WorkloadRow, tuple[str, ...]]]) -> dict[tuple[int, str], str]:
    """Return, for each name, the phase of its newest workload or the state of its newest array."""
    filters = Q()
    for row, names in dependents:
        filters |= Q(project_id=row.project_id, name__in=names)
    columns = ("submitted_at", "pk", "project_id", "name")
    workloads = Workload.objects.filter(filters).order_by().values_list(*columns, "phase")
    arrays = WorkloadArray.objects.filter(filters).order_by().values_list(*columns, "state")
    rows = workloads.union(arrays, all=True).order_by("submitted_at", "pk")
    return {(project, name): phase for _, _, project, name, phase in rows}


def _placeholder(handle: str, project: str, pools: tuple[str, ...]) -> model.Workload:
    return model.Workload(handle, project, NOTHING_TO_RUN, pools, suspended=True)
