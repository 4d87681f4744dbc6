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
from projects.services.quotas.expiry import faults_of_time
from projects.services.quotas.values import columns_of
from projects.services.quotas.write import require_to_set

MOST_CHANGES = 200
MOST_NOTE = 500
KEYS = ("project", "department", "pool", "set", "remove")

Owner = Department | Project


def read_draft(acting: Acting, document: Mapping[str, Any]) -> Draft:
    """Raises Invalid, and Forbidden where the person may not set one of these quotas."""
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


def _expires_at(given: Any, problems: list[Problem]) -> datetime | None:
    if given is None:
        return None
    try:
        at = moment(given)
    except ValueError:
        problems.append(Problem("expires_at", "is not a time", shown(given), MOMENT_ALLOWED))
        return None
    problems.extend(faults_of_time(at, timezone.now()))
    return at


def _note(given: Any, problems: list[Problem]) -> str:
    if given is None:
        return ""
    if not isinstance(given, str) or len(given) > MOST_NOTE or "\x00" in given:
        problems.append(
            Problem("comment", "is not a comment", shown(given), f"at most {MOST_NOTE} characters")
        )
        return ""
    return given.strip()


def _changes(acting: Acting, given: Any, problems: list[Problem]) -> list[Change]:
    if not isinstance(given, list) or not 1 <= len(given) <= MOST_CHANGES:
        allowed = f"a list of 1 to {MOST_CHANGES} changes"
        problems.append(Problem("changes", "is not a list of changes", shown(given), allowed))
        return []
    names = _Names(acting)
    found: list[Change] = []
    seen: dict[Any, str] = {}
    for number, entry in enumerate(given):
        change = _change(names, f"changes[{number}]", entry, problems)
        if change is None:
            continue
        key = (type(change.owner), change.owner.pk, change.pool.pk)
        if key in seen:
            problems.append(Problem(change.path, f"names the same quota as {seen[key]}", "", "each once"))
        seen.setdefault(key, change.path)
        found.append(change)
    return found


def _change(names: "_Names", path: str, entry: Any, problems: list[Problem]) -> Change | None:
    if not isinstance(entry, Mapping):
        problems.append(Problem(path, "is not keys and values", shown(entry), ", ".join(KEYS)))
        return None
    known = len(problems)
    for key in entry:
        if key not in KEYS:
            problems.append(Problem(f"{path}.{key}", "unknown key", shown(key), suggestion(str(key), KEYS)))
    owner = names.owner(path, entry, problems)
    pool = names.pool(path, entry.get("pool"), problems)
    columns = _columns(path, entry, problems)
    if len(problems) > known or owner is None or pool is None:
        return None
    return Change(owner, pool, columns, path)


def _columns(path: str, entry: Mapping[str, Any], problems: list[Problem]) -> dict[str, Any] | None:
    removes, values = entry.get("remove", False), entry.get("set")
    if removes is True and values is None:
        return None
    if removes is not False or not isinstance(values, Mapping):
        given = shown(values) if "set" in entry else ""
        problems.append(Problem(path, "says neither what to set nor to remove it", given,
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
    """Owners and pools by name, as far as the person sees them; each list is read once."""

    def __init__(self, acting: Acting) -> None:
        self._acting = acting
        self._known: dict[str, dict[str, Any]] = {}

    def owner(self, path: str, entry: Mapping[str, Any], problems: list[Problem]) -> Owner | None:
        kinds = [kind for kind in ("project", "department") if kind in entry]
        if len(kinds) != 1:
            problems.append(Problem(path, "names no owner", "", "one of project: NAME, department: NAME"))
            return None
        found: Owner | None = self._find(f"{path}.{kinds[0]}", kinds[0], entry[kinds[0]], problems)
        return found

    def pool(self, path: str, name: Any, problems: list[Problem]) -> NodePool | None:
        found: NodePool | None = self._find(f"{path}.pool", "pool", name, problems)
        return found

    def _find(self, path: str, kind: str, name: Any, problems: list[Problem]) -> Any:
        if kind not in self._known:
            self._known[kind] = {row.name: row for row in self._rows(kind)}
        known = self._known[kind]
        found = known.get(name) if isinstance(name, str) else None
        if found is None:
            allowed = (
                suggestion(str(name), known) if nearest(str(name), known) else f"a {kind} that you can see"
            )
            problems.append(Problem(path, f"no such {kind}", shown(name), allowed))
        return found

    def _rows(self, kind: str) -> Any:
        if kind == "pool":
            return NodePool.objects.all()
        if kind == "project":
            return selectors.projects(self._acting)
        return selectors.departments(self._acting)
