"""Parse quota drafts.

changes:
  - {project: vision, pool: local, set: {gpu: 8}}
  - {department: research, pool: spot, remove: true}
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.utils import timezone

from berth.core.errors import Invalid
from berth.core.problems import Problem, nearest, shown, suggestion
from berth.core.spec.quantities import MOMENT_ALLOWED, moment
from pools.models import NodePool
from projects import selectors
from projects.acting import Acting
from projects.models import Department, Project
from projects.services.quotas.drafts import Change, Draft
from projects.services.quotas.expiry import expiry_problems
from projects.services.quotas.values import columns_of
from projects.services.quotas.write import require_to_set

MAX_CHANGES = 200
MAX_COMMENT = 500
KEYS = ("project", "department", "pool", "set", "remove")

Owner = Department | Project


def read_draft(acting: Acting, document: Mapping[str, Any]) -> Draft:
    """Return the draft in a document. Raises Invalid, and Forbidden for quotas that the user may not set."""
    problems = [
        Problem(str(key), "unknown key", shown(value), "changes, comment, expires_at")
        for key, value in document.items()
        if key not in ("changes", "expires_at", "comment")
    ]
    comment = _note(document.get("comment"), problems)
    changes = _changes(acting, document.get("changes"), problems)
    expires_at = _expires_at(document.get("expires_at"), problems)
    if problems:
        raise Invalid(problems)
    for change in changes:
        require_to_set(acting, change.owner)
    return Draft(tuple(changes), comment, expires_at)


def _expires_at(value: Any, problems: list[Problem]) -> datetime | None:
    if value is None:
        return None
    try:
        at = moment(value)
    except ValueError:
        problems.append(Problem("expires_at", "is not a time", shown(value), MOMENT_ALLOWED))
        return None
    problems.extend(expiry_problems(at, timezone.now()))
    return at


def _note(value: Any, problems: list[Problem]) -> str:
    if value is None:
        return ""
    if not isinstance(value, str) or len(value) > MAX_COMMENT or "\x00" in value:
        problems.append(
            Problem("comment", "is not a comment", shown(value), f"at most {MAX_COMMENT} characters")
        )
        return ""
    return value.strip()


def _changes(acting: Acting, value: Any, problems: list[Problem]) -> list[Change]:
    if not isinstance(value, list) or not 1 <= len(value) <= MAX_CHANGES:
        allowed = f"a list of 1 to {MAX_CHANGES} changes"
        problems.append(Problem("changes", "is not a list of changes", shown(value), allowed))
        return []
    names = _Names(acting)
    changes: list[Change] = []
    paths: dict[Any, str] = {}
    for number, entry in enumerate(value):
        change = _change(names, f"changes[{number}]", entry, problems)
        if change is None:
            continue
        key = (type(change.owner), change.owner.pk, change.pool.pk)
        if key in paths:
            problems.append(
                Problem(change.path, f"names the same quota as {paths[key]}", "", "each quota once")
            )
        paths.setdefault(key, change.path)
        changes.append(change)
    return changes


def _change(names: "_Names", path: str, entry: Any, problems: list[Problem]) -> Change | None:
    if not isinstance(entry, Mapping):
        problems.append(Problem(path, "is not a mapping", shown(entry), ", ".join(KEYS)))
        return None
    problems_before = len(problems)
    for key in entry:
        if key not in KEYS:
            problems.append(Problem(f"{path}.{key}", "unknown key", shown(key), suggestion(str(key), KEYS)))
    owner = names.owner(path, entry, problems)
    pool = names.pool(path, entry.get("pool"), problems)
    columns = _columns(path, entry, problems)
    if len(problems) > problems_before or owner is None or pool is None:
        return None
    return Change(owner, pool, columns, path)


def _columns(path: str, entry: Mapping[str, Any], problems: list[Problem]) -> dict[str, Any] | None:
    is_removed, values = entry.get("remove", False), entry.get("set")
    if is_removed is True and values is None:
        return None
    if is_removed is not False or not isinstance(values, Mapping):
        received = shown(values) if "set" in entry else ""
        problems.append(Problem(path, "needs either `set` or `remove`", received,
                                "either set: {...} or remove: true"))  # fmt: skip
        return None
    try:
        return columns_of(values)
    except Invalid as error:
        problems += [
            Problem(f"{path}.set.{p.path}", p.message, p.received, p.allowed) for p in error.problems
        ]
        return None


class _Names:
    """Look up visible owners and pools by name. Each list is read once."""

    def __init__(self, acting: Acting) -> None:
        self._acting = acting
        self._rows_by_kind: dict[str, dict[str, Any]] = {}

    def owner(self, path: str, entry: Mapping[str, Any], problems: list[Problem]) -> Owner | None:
        kinds = [kind for kind in ("project", "department") if kind in entry]
        if len(kinds) != 1:
            problems.append(Problem(path, "needs exactly one owner", "", "project: NAME or department: NAME"))
            return None
        owner: Owner | None = self._lookup(f"{path}.{kinds[0]}", kinds[0], entry[kinds[0]], problems)
        return owner

    def pool(self, path: str, name: Any, problems: list[Problem]) -> NodePool | None:
        pool: NodePool | None = self._lookup(f"{path}.pool", "pool", name, problems)
        return pool

    def _lookup(self, path: str, kind: str, name: Any, problems: list[Problem]) -> Any:
        if kind not in self._rows_by_kind:
            self._rows_by_kind[kind] = {row.name: row for row in self._rows(kind)}
        rows = self._rows_by_kind[kind]
        row = rows.get(name) if isinstance(name, str) else None
        if row is None:
            allowed = (
                suggestion(str(name), rows) if nearest(str(name), rows) else f"a {kind} that you can see"
            )
            problems.append(Problem(path, f"no such {kind}", shown(name), allowed))
        return row

    def _rows(self, kind: str) -> Any:
        if kind == "pool":
            return NodePool.objects.all()
        if kind == "project":
            return selectors.projects(self._acting)
        return selectors.departments(self._acting)
