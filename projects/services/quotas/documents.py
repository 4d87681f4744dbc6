"""Parse quota drafts.

Example:

changes:
  - {project: vision, pool: local, set: {gpu: 8}}
  - {department: research, pool: spot, remove: true}
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.utils import timezone

from berth.core.errors import Invalid
from berth.core.problems import Problem, closest_match, format_value, suggest
from berth.core.spec.values.quantities import MOMENT_ALLOWED, parse_time
from pools.models import NodePool, QuotaGroup
from projects import selectors
from projects.actor import Actor
from projects.models.tenants import PoolOrGroup, Tenant
from projects.services.quotas.drafts import Draft, QuotaChangeDraft
from projects.services.quotas.expiry import expiry_problems
from projects.services.quotas.values import parse_columns
from projects.services.quotas.write import require_quota_permission

MAX_CHANGES = 200
MAX_COMMENT = 500
KEYS = ("project", "department", "pool", "set", "remove")


def read_draft(actor: Actor, document: Mapping[str, Any]) -> Draft:
    """Return the draft in the document. Raises Invalid, or Forbidden if the user may not set a quota."""
    problems = [
        Problem(str(key), "unknown key", format_value(value), "changes, comment, expires_at")
        for key, value in document.items()
        if key not in ("changes", "expires_at", "comment")
    ]
    comment = _parse_comment(document.get("comment"), problems)
    changes = _parse_changes(actor, document.get("changes"), problems)
    expires_at = _parse_expiry(document.get("expires_at"), problems)
    if problems:
        raise Invalid(problems)
    for change in changes:
        require_quota_permission(actor, change.owner)
    return Draft(tuple(changes), comment, expires_at)


def _parse_expiry(value: Any, problems: list[Problem]) -> datetime | None:
    if value is None:
        return None
    try:
        at = parse_time(value)
    except ValueError:
        problems.append(Problem("expires_at", "is not a valid time", format_value(value), MOMENT_ALLOWED))
        return None
    problems.extend(expiry_problems(at, timezone.now()))
    return at


def _parse_comment(value: Any, problems: list[Problem]) -> str:
    if value is None:
        return ""
    if not isinstance(value, str) or len(value) > MAX_COMMENT or "\x00" in value:
        problems.append(
            Problem(
                "comment", "is not a valid comment", format_value(value), f"at most {MAX_COMMENT} characters"
            )
        )
        return ""
    return value.strip()


def _parse_changes(actor: Actor, value: Any, problems: list[Problem]) -> list[QuotaChangeDraft]:
    if not isinstance(value, list) or not 1 <= len(value) <= MAX_CHANGES:
        allowed = f"a list of 1 to {MAX_CHANGES} changes"
        problems.append(Problem("changes", "is not a list of changes", format_value(value), allowed))
        return []
    names = _NameLookup(actor)
    changes: list[QuotaChangeDraft] = []
    paths: dict[Any, str] = {}
    for number, entry in enumerate(value):
        change = _parse_change(names, f"changes[{number}]", entry, problems)
        if change is None:
            continue
        key = (change.owner, change.pool)
        if key in paths:
            problems.append(
                Problem(change.path, f"names the same quota as {paths[key]}", "", "each quota once")
            )
        paths.setdefault(key, change.path)
        changes.append(change)
    return changes


def _parse_change(
    names: "_NameLookup", path: str, entry: Any, problems: list[Problem]
) -> QuotaChangeDraft | None:
    if not isinstance(entry, Mapping):
        problems.append(Problem(path, "is not a mapping", format_value(entry), ", ".join(KEYS)))
        return None
    problems_before = len(problems)
    for key in entry:
        if key not in KEYS:
            problems.append(
                Problem(f"{path}.{key}", "unknown key", format_value(key), suggest(str(key), KEYS))
            )
    owner = names.find_owner(path, entry, problems)
    pool = names.find_pool(path, entry.get("pool"), problems)
    columns = _parse_columns(path, entry, problems)
    if len(problems) > problems_before or owner is None or pool is None:
        return None
    return QuotaChangeDraft(owner, pool, columns, path)


def _parse_columns(path: str, entry: Mapping[str, Any], problems: list[Problem]) -> dict[str, Any] | None:
    is_removed, values = entry.get("remove", False), entry.get("set")
    if is_removed is True and values is None:
        return None
    if is_removed is not False or not isinstance(values, Mapping):
        received = format_value(values) if "set" in entry else ""
        problems.append(Problem(path, "needs either `set` or `remove`", received,
                                "either set: {...} or remove: true"))  # fmt: skip
        return None
    try:
        return parse_columns(values)
    except Invalid as error:
        problems += [
            Problem(f"{path}.set.{p.path}", p.message, p.received, p.allowed) for p in error.problems
        ]
        return None


class _NameLookup:
    """Lookup of visible owners, pools and quota groups by name. The lookup loads each kind of object at most
    once.
    """

    def __init__(self, actor: Actor) -> None:
        self._acting = actor
        self._rows_by_kind: dict[str, dict[str, Any]] = {}

    def find_owner(self, path: str, entry: Mapping[str, Any], problems: list[Problem]) -> Tenant | None:
        kinds = [kind for kind in ("project", "department") if kind in entry]
        if len(kinds) != 1:
            problems.append(
                Problem(path, "requires exactly one owner", "", "project: NAME or department: NAME")
            )
            return None
        owner: Tenant | None = self._find_visible_object(
            f"{path}.{kinds[0]}", kinds[0], entry[kinds[0]], problems
        )
        return owner

    def find_pool(self, path: str, name: Any, problems: list[Problem]) -> PoolOrGroup | None:
        pool: PoolOrGroup | None = self._find_visible_object(f"{path}.pool", "pool", name, problems)
        return pool

    def _find_visible_object(self, path: str, kind: str, name: Any, problems: list[Problem]) -> Any:
        if kind not in self._rows_by_kind:
            self._rows_by_kind[kind] = {row.name: row for row in self._visible_rows(kind)}
        rows = self._rows_by_kind[kind]
        row = rows.get(name) if isinstance(name, str) else None
        if row is None:
            allowed = (
                suggest(str(name), rows) if closest_match(str(name), rows) else f"a {kind} that you can see"
            )
            problems.append(Problem(path, "does not exist", format_value(name), allowed))
        return row

    def _visible_rows(self, kind: str) -> Any:
        if kind == "pool":
            return [*NodePool.objects.all(), *QuotaGroup.objects.all()]
        if kind == "project":
            return selectors.projects(self._acting)
        return selectors.departments(self._acting)
