"""Find cycles among the dependencies of workloads that have not started."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from django.db.models import Q

from berth.core.spec import WorkloadSpec
from berth.core.spec.rules.arrays import task_name
from berth.core.spec.sections.after import WorkloadReference
from projects.models import ArrayState, Workload, WorkloadArray
from projects.models.workloads import ENDED_PHASES


class DependencyGraph:
    """Graph of the workloads and arrays that wait for each other. A task is represented by its array."""

    def __init__(self) -> None:
        self._awaited: dict[WorkloadReference, list[WorkloadReference]] = {}
        self._arrays: dict[WorkloadReference, WorkloadReference] = {}  # array of each task in the graph

    @classmethod
    def load(
        cls, referred: Collection[WorkloadReference], *, without: WorkloadReference | None = None
    ) -> "DependencyGraph":
        """Load the waiting workloads and arrays that new documents depend on, directly or indirectly.

        `referred` contains the names that the documents depend on. The workload or array `without` is
        ignored.
        """
        graph = cls()
        loaded: set[str] = set()
        names = set(referred)
        while projects := {name.project for name in names} - loaded:
            names |= graph._load_projects(projects, without)
            loaded |= projects
        graph._load_tasks(names)
        return graph

    def _load_projects(
        self, projects: Collection[str], without: WorkloadReference | None
    ) -> set[WorkloadReference]:
        """Return the names that the projects' waiting workloads and arrays depend on."""
        workloads = Workload.objects.filter(array__isnull=True, run=0).exclude(phase__in=ENDED_PHASES)
        arrays = WorkloadArray.objects.filter(state=ArrayState.ACTIVE)
        columns = ("project__name", "name", "spec__after")
        waiting, active = (
            rows.filter(project__name__in=projects, spec__has_key="after").order_by().values_list(*columns)
            for rows in (workloads, arrays)
        )
        awaited = set()
        for project, name, section in waiting.union(active, all=True):
            if (project, name) != without:
                self._awaited[WorkloadReference(project, name)] = references = list(
                    _iter_references(project, section)
                )
                awaited.update(references)
        return awaited

    def _load_tasks(self, names: Collection[WorkloadReference]) -> None:
        filters = Q()
        for project in {name.project for name in names}:
            own = [name.name for name in names if name.project == project]
            filters |= Q(project__name=project, name__in=own)
        tasks = Workload.objects.filter(filters, array__isnull=False).exclude(phase__in=ENDED_PHASES)
        for project, name, array in tasks.order_by().values_list("project__name", "name", "array__name"):
            self._arrays[WorkloadReference(project, name)] = WorkloadReference(project, array)

    def add(self, name: WorkloadReference, spec: WorkloadSpec) -> list[WorkloadReference]:
        """Add a document to the graph unless it would close a cycle.

        Return the names in that cycle, or [] if the document was added.
        """
        if spec.array is not None:
            tasks = {
                WorkloadReference(name.project, task_name(name.name, index)) for index in spec.array.indexes
            }
            self._arrays |= dict.fromkeys(tasks, name)
        awaited = [dependency.workload_reference(name.project) for dependency in spec.after]
        cycle = self._shortest_cycle(name, awaited)
        if not cycle:
            self._awaited[name] = awaited
        return cycle

    def _shortest_cycle(
        self, target: WorkloadReference, starts: Iterable[WorkloadReference]
    ) -> list[WorkloadReference]:
        """Return the shortest cycle from `target` through one of `starts`, or [] if there is none."""
        previous: dict[WorkloadReference, WorkloadReference] = {}
        level = self._new_steps(target, starts, previous)
        while level:
            if target in level:
                path = [target]
                while (step := previous[path[-1]]) != target:
                    path.append(step)
                return [target, *reversed(path)]
            level = [
                step
                for name in level
                for step in self._new_steps(name, self._awaited.get(name, ()), previous)
            ]
        return []

    def _new_steps(
        self,
        source: WorkloadReference,
        names: Iterable[WorkloadReference],
        previous: dict[WorkloadReference, WorkloadReference],
    ) -> list[WorkloadReference]:
        steps = []
        for name in names:
            step = self._arrays.get(name, name)
            if step not in previous:
                previous[step] = source
                steps.append(step)
        return steps


def _iter_references(project: str, section: Any) -> Iterable[WorkloadReference]:
    """Yield the names in a stored `after` section, which may be invalid."""
    for entry in section if isinstance(section, Sequence) else ():
        reference = entry.get("workload") if isinstance(entry, Mapping) else None
        if isinstance(reference, str):
            other, slash, name = reference.rpartition("/")
            yield WorkloadReference(other if slash else project, name)
