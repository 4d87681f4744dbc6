"""Cache the parsed document of each live workload.

A stored document never changes, hence the id is key enough.
"""

import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from berth.core.spec import SpecError, WorkloadSpec, parse_workload, tree_of
from projects.models import Workload
from scheduler.engine.from_spec import group_of
from scheduler.engine.model import Group, Role

NOTHING_TO_RUN = Group("all", (), 0)


@dataclass(frozen=True, slots=True)
class Meaning:
    """The checked spec and the engine's tree of it; `trouble` says why it cannot be read any more."""

    spec: WorkloadSpec | None
    tree: Group
    roles: Mapping[str, Role]
    trouble: str = ""


def meaning_of(document: object) -> Meaning:
    try:
        spec = parse_workload(document)
    except SpecError as error:
        return Meaning(None, NOTHING_TO_RUN, {}, f"The stored document cannot be read any more: {error}")
    tree = group_of(tree_of(spec))
    return Meaning(spec, tree, {role.name: role for role in roles_in(tree)})


def roles_in(group: Group) -> Iterator[Role]:
    """The leaves, in the order in which they were written."""
    for child in group.children:
        if isinstance(child, Role):
            yield child
        else:
            yield from roles_in(child)


class Specs:
    """The meanings of live workloads, by id."""

    def __init__(self) -> None:
        self._known: dict[uuid.UUID, Meaning] = {}

    def of(self, workload: Workload) -> Meaning:
        found = self._known.get(workload.pk)
        if found is None:
            found = self._known[workload.pk] = meaning_of(workload.spec)
        return found

    def of_all(self, ids: Collection[uuid.UUID]) -> Mapping[uuid.UUID, Meaning]:
        """Those of these workloads; only documents never seen before are read."""
        missing = [pk for pk in ids if pk not in self._known]
        for pk, document in _documents(missing):
            self._known[pk] = meaning_of(document)
        return self._known

    def keep_only(self, ids: Collection[uuid.UUID]) -> None:
        """Forget workloads that ended."""
        if len(self._known) > 2 * len(ids) + 1000:
            self._known = {pk: self._known[pk] for pk in ids if pk in self._known}


def _documents(ids: list[uuid.UUID]) -> Iterable[tuple[uuid.UUID, object]]:
    return Workload.objects.filter(pk__in=ids).values_list("pk", "spec") if ids else ()
