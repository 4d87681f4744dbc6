"""Check the `after` sections of submitted and edited documents."""

import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from berth.core.problems import Problem, format_value
from berth.core.spec import WorkloadSpec
from berth.core.spec.sections.after import WorkloadReference
from berth.core.spec.sections.arrays import compress
from berth.core.wording.dependencies import VERBS
from projects.models import Phase, Project, Workload
from projects.services.dependencies.cycles import DependencyGraph
from projects.services.dependencies.resolution import (
    NewestObject,
    ResolvedDependency,
    find_newest_objects,
    lock_dependencies,
    resolve_dependencies,
)

Document = tuple[Project, WorkloadSpec]
HIDDEN_WORKLOAD = "a workload of another project"


class ProjectView(Protocol):
    """Projects loaded for one request. Locked projects cannot be deleted during the transaction."""

    has_locks: bool

    def load_projects(self, names: Iterable[str]) -> None: ...

    def visible_project(self, name: str) -> Project | None: ...


def dependency_problems(
    view: ProjectView, documents: Sequence[Document], *, edited: WorkloadReference | None = None
) -> list[list[Problem]]:
    """Return the problems with the dependencies of each document.

    Documents may refer to each other. If `edited` is set, there is a single document, which replaces the
    workload with this name. If `view` holds locks, call this in the transaction that stores the documents.
    """
    names = _awaited_names(documents)
    if not names:
        return [[] for _ in documents]
    if view.has_locks:
        lock_dependencies()
    view.load_projects({name.project for name in names})
    newest = find_newest_objects(names)
    graph = DependencyGraph.load(names, without=edited)
    own = {WorkloadReference(project.name, spec.name) for project, spec in documents}
    problems = []
    for project, spec in documents:
        invalid = [*_document_problems(view, project, spec, newest, own)]
        cycle = [] if invalid else graph.add(WorkloadReference(project.name, spec.name), spec)
        if cycle:
            path = " -> ".join(_display_name(view, name) for name in cycle)
            invalid.append(Problem("after", "forms a cycle", path, "workloads that do not wait for this one"))
        problems.append(invalid)
    return problems


def missing_dependency_warnings(documents: Sequence[Document]) -> list[list[str]]:
    """Return the warnings for each document.

    There is a warning for each dependency whose name neither exists nor is being submitted.
    """
    names = _awaited_names(documents)
    existing: set[WorkloadReference] = {
        WorkloadReference(project.name, spec.name) for project, spec in documents
    }
    if names - existing:
        existing |= find_newest_objects(names).keys()
    return [
        [
            f"The dependency {name} does not exist yet."
            for name in sorted({dependency.workload_reference(project.name) for dependency in spec.after})
            if name not in existing
        ]
        for project, spec in documents
    ]


def _awaited_names(documents: Sequence[Document]) -> set[WorkloadReference]:
    return {
        dependency.workload_reference(project.name)
        for project, spec in documents
        for dependency in spec.after
    }


def _document_problems(
    view: ProjectView,
    project: Project,
    spec: WorkloadSpec,
    newest: Mapping[WorkloadReference, NewestObject],
    batch: Collection[WorkloadReference],
) -> Iterator[Problem]:
    for number, each in enumerate(resolve_dependencies(project.name, spec.after, newest)):
        path, dependency = f"after[{number}]", spec.after[number]
        received = format_value(dependency.workload)
        if each.awaited.project != project.name and view.visible_project(each.awaited.project) is None:
            allowed = "a workload of this project, or of another project that you can see"
            yield Problem(f"{path}.workload", "names a project that does not exist", received, allowed)
        elif each.awaited in batch:
            continue  # the new workload is not yet stored
        elif dependency.tasks is not None:
            yield from _task_problems(path, spec, each)
        elif each.is_unreachable:
            was = "was " if each.phase == Phase.CANCELLED else ""
            message = f"{was}{each.phase}, so it can no longer {VERBS[each.state]}"
            states = "any" if each.phase == Phase.CANCELLED else f"{each.phase} or any"
            allowed = f"a workload that has not ended, or state {states}"
            yield Problem(f"{path}.workload", message, received, allowed)


def _task_problems(path: str, spec: WorkloadSpec, each: ResolvedDependency) -> Iterator[Problem]:
    """Yield a problem if the awaited object is not an array, or if it lacks a task index that the dependent
    array has.
    """
    if each.newest is None or spec.array is None:
        return
    if not each.newest.is_array:
        yield Problem(f"{path}.tasks", "needs an array", format_value(str(each.awaited)), "an array name")
        return
    missing = set(spec.array.indexes) - _task_indexes(each.newest.pk)
    if missing:
        yield Problem(
            f"{path}.tasks", f"refers to tasks that {each.awaited} does not have", compress(missing),
            "an array with the same indexes",
        )  # fmt: skip


def _task_indexes(array: uuid.UUID) -> set[int]:
    tasks = Workload.objects.filter(array=array, superseded=False).order_by()
    return {index for index in tasks.values_list("array_index", flat=True) if index is not None}


def _display_name(view: ProjectView, name: WorkloadReference) -> str:
    return HIDDEN_WORKLOAD if view.visible_project(name.project) is None else str(name)
