"""Unmet dependencies of workloads that have not started."""

import uuid
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from berth.core.spec import WorkloadSpec
from berth.core.spec.sections.after import Dependency
from projects.models import Phase
from projects.services.dependencies import find_newest_objects, resolve_dependencies
from projects.services.dependencies.resolution import NOT_SUBMITTED
from scheduler.engine import model
from scheduler.loop.observe.live_rows import WorkloadRow
from scheduler.loop.observe.queues import Queues
from scheduler.loop.observe.specs import NOTHING_TO_RUN

# Phases in which a workload is cancelled once a dependency can no longer be met.
CANCELLABLE = (Phase.PENDING, Phase.RESERVED)


class Dependent(Protocol):
    """Stored or unsaved workload with dependencies."""

    @property
    def pk(self) -> uuid.UUID: ...
    @property
    def project_id(self) -> int: ...
    @property
    def phase(self) -> str: ...
    @property
    def pools(self) -> Sequence[str]: ...


@dataclass(frozen=True, slots=True)
class Dependencies:
    """Unmet dependencies, keyed by workload ID, and placeholders for awaited workloads outside the snapshot.

    `never_met` contains the pending workloads with a dependency that can no longer be met.
    """

    unmet: Mapping[uuid.UUID, tuple[model.Dependency, ...]]
    placeholders: tuple[model.Workload, ...]
    never_met: frozenset[uuid.UUID] = frozenset()


NO_DEPENDENCIES = Dependencies({}, ())


def has_applicable_dependencies(row: WorkloadRow, spec: WorkloadSpec) -> bool:
    """Return whether the workload has dependencies and has never started."""
    return bool(spec.after) and row.run == 0


def find_dependencies(
    dependents: Sequence[tuple[Dependent, tuple[Dependency, ...]]], visible: Container[str], queues: Queues
) -> Dependencies:
    """Return the unmet dependencies of the workloads.

    `visible` contains the names of the workloads in the snapshot.
    """
    names = queues.project_names
    newest = find_newest_objects(
        {entry.workload_reference(names[row.project_id]) for row, entries in dependents for entry in entries}
    )
    unmet: dict[uuid.UUID, tuple[model.Dependency, ...]] = {}
    placeholders: dict[str, model.Workload] = {}
    never_met = set()
    for row, entries in dependents:
        project = names[row.project_id]
        waiting = [each for each in resolve_dependencies(project, entries, newest) if not each.is_met]
        unmet[row.pk] = tuple(
            # All project members can read the reason, so it omits the states of other projects' workloads.
            model.Dependency(
                str(each.awaited),
                each.state,
                (each.phase or NOT_SUBMITTED) if each.awaited.project == project else "",
            )
            for each in waiting
        )
        if row.phase in CANCELLABLE and any(each.is_unreachable for each in waiting):
            never_met.add(row.pk)
        for name in (str(each.awaited) for each in waiting):
            if name not in visible:
                placeholders[name] = _placeholder_workload(
                    name, queues.projects[row.project_id], tuple(row.pools)
                )
    ordered = tuple(placeholders[name] for name in sorted(placeholders))
    return Dependencies(unmet, ordered, frozenset(never_met))


def _placeholder_workload(name: str, project: str, pools: tuple[str, ...]) -> model.Workload:
    return model.Workload(name, project, NOTHING_TO_RUN, pools, suspended=True)
