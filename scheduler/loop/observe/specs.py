"""Cache the parsed document of each live workload. A document is read again only after an edit."""

import json
import uuid
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

from berth.core.spec import SpecError, WorkloadSpec, build_tree, parse_workload
from berth.core.spec.values.texts import NAME
from berth.db.queries import prepared
from projects.models import Workload
from scheduler.engine.from_spec import to_role_group
from scheduler.engine.model import Role, RoleGroup, roles_in

NOTHING_TO_RUN = RoleGroup("all", (), 0)
MAX_TEMPLATES = 1000
DOCUMENTS = """
    SELECT id, edits, spec -> 'name',
           (CASE jsonb_typeof(spec) WHEN 'object' THEN spec - 'name' ELSE spec END)::text
      FROM projects_workload WHERE id = ANY(%s::uuid[])
"""


@dataclass(frozen=True, slots=True)
class ParsedSpec:
    """Validated document with its tree of groups and roles, or the reason why it can no longer be read."""

    spec: WorkloadSpec | None
    tree: RoleGroup
    roles: Mapping[str, Role]
    error: str = ""

    @property
    def may_use_gpus(self) -> bool:
        """Return whether the workload's pods can have devices, or True if the document cannot be read."""
        return self.spec is None or any(role.request.devices for role in self.roles.values())

    @property
    def has_one_replica(self) -> bool:
        """Return whether the workload always runs as a single replica."""
        return self.spec is not None and sum(role.maximum for role in self.spec.all_roles) == 1


def parse_spec(document: object) -> ParsedSpec:
    try:
        spec = parse_workload(document)
    except SpecError as error:
        return ParsedSpec(None, NOTHING_TO_RUN, {}, f"The stored document can no longer be read: {error}")
    tree = to_role_group(build_tree(spec))
    return ParsedSpec(spec, tree, {role.name: role for role in roles_in(tree)})


class SpecCache:
    """Parsed documents of live workloads, keyed by workload ID."""

    def __init__(self) -> None:
        # Number of edits and parsed document, by workload ID.
        self._specs: dict[uuid.UUID, tuple[int, ParsedSpec]] = {}
        # Parsed documents, keyed by the document without its name.
        self._templates: dict[str, ParsedSpec] = {}

    def get(self, workload: Workload) -> ParsedSpec:
        edits, spec = self._specs.get(workload.pk, (None, None))
        if spec is None or edits != workload.edits:
            spec = parse_spec(workload.spec)
            self._specs[workload.pk] = workload.edits, spec
        return spec

    def get_all(self, edits: Mapping[uuid.UUID, int]) -> Mapping[uuid.UUID, ParsedSpec]:
        """Return the parsed documents, keyed by workload ID. `edits` maps workload IDs to edit counts."""
        missing = [pk for pk, number in edits.items() if self._cached_edit_count(pk) != number]
        for pk, number, name, text in _read_documents(missing):
            self._specs[pk] = number, self._parse(name, text)
        return {pk: self._specs[pk][1] for pk in edits}

    def _parse(self, name: object, text: str) -> ParsedSpec:
        """Parse a document, given its name and the JSON text of its other keys."""
        template = self._templates.get(text)
        if (
            template is not None
            and template.spec is not None
            and isinstance(name, str)
            and NAME.fullmatch(name)
        ):
            return replace(template, spec=template.spec.model_copy(update={"name": name}))
        document = json.loads(text)
        parsed = parse_spec({**document, "name": name} if isinstance(document, dict) and name else document)
        if parsed.spec is not None and not parsed.spec.after and parsed.spec.array is None:
            if len(self._templates) >= MAX_TEMPLATES:
                self._templates.clear()
            self._templates[text] = parsed
        return parsed

    def retain_documents(self, ids: Collection[uuid.UUID]) -> None:
        """Once the cache has grown too large, remove all documents except those of the workloads in `ids`."""
        if len(self._specs) > 2 * len(ids) + 1000:
            self._specs = {pk: self._specs[pk] for pk in ids if pk in self._specs}

    def _cached_edit_count(self, pk: uuid.UUID) -> int | None:
        cached = self._specs.get(pk)
        return None if cached is None else cached[0]


def _read_documents(ids: list[uuid.UUID]) -> Iterator[tuple[uuid.UUID, int, object, str]]:
    """Yield each workload's ID, its edit count, the name in its document, and the rest of the document as
    text.
    """
    for pk, edits, name, text in prepared.fetch_all(DOCUMENTS, [ids]) if ids else ():
        yield pk, edits, name and json.loads(name), text
