"""Parse the cells of the quota grid, and map errors back to them."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from berth.core.errors import Invalid
from berth.core.problems import Problem, shown
from pools.models import NodePool
from projects.acting import Acting
from projects.models import Department, Project
from projects.selectors import departments, projects
from projects.services.quotas import Columns, columns_of, require_to_set
from projects.services.quotas.drafts import Change, quota_key, stored_quotas
from projects.web.quotas.cells import FIELDS, NO_QUOTA, document, field_at, removes
from scheduler.web.quotas.grid_table import owners_of

MOST_QUOTAS = 1000
LONGEST = 60  # maximum characters per cell

Owner = Department | Project


@dataclass(frozen=True, slots=True)
class Typed:
    """The edited cells of one quota, and the version that they are based on."""

    key: str
    owner: Owner
    pool: NodePool
    cells: dict[str, str]
    version: str

    @property
    def place(self) -> str:
        return f"{self.key}/{self.pool.name}"

    @property
    def removes(self) -> bool:
        return all(map(removes, self.cells.values()))


def read_typed(acting: Acting, text: str) -> list[Typed]:
    """Parse `{"cells": [[owner, pool, field, text], ...], "versions": {"owner/pool": version}}`.

    Raises Invalid, and Forbidden if the user may not set one of the quotas.
    """
    cells, versions = _parse_draft(text)
    result: dict[str, dict[str, str]] = {}
    for key, pool, name, cell_text in cells:
        result.setdefault(f"{key}/{pool}", {})[name] = cell_text
    if not result:
        raise Invalid([Problem("draft", "No changes to apply", "", "at least one cell")])
    if len(result) > MOST_QUOTAS:
        allowed = f"{MOST_QUOTAS} at a time"
        raise Invalid([Problem("draft", "changes too many quotas", shown(len(result)), allowed)])
    owners, pools = _owners(acting, result), {each.name: each for each in NodePool.objects.all()}
    typed: list[Typed] = []
    for place, values in sorted(result.items()):
        key, _, pool = place.partition("/")
        if key not in owners or pool not in pools:
            raise Invalid([Problem("draft", "names an unknown quota", shown(place), "a quota in the grid")])
        typed.append(Typed(key, owners[key], pools[pool], values, versions.get(place, "")))
    for owner in dict.fromkeys(each.owner for each in typed):
        require_to_set(acting, owner)
    return typed


def changes_of(typed: Sequence[Typed]) -> tuple[Change, ...]:
    """Return the changes. Raises Invalid with all errors, which `faults_of` maps to cells."""
    stored, problems, result = stored_quotas([(each.owner, each.pool) for each in typed]), [], []
    for number, each in enumerate(typed):
        path, quota = f"changes[{number}]", stored.get(quota_key(each.owner, each.pool))
        alike = quota is None or quota.weight_gpu == quota.weight_cpu == quota.weight_memory
        try:
            columns = _columns(each, alike=alike)
        except Invalid as error:
            problems += [
                Problem(f"{path}.set.{fault.path}", fault.message, fault.received, fault.allowed)
                for fault in error.problems
            ]
        else:
            result.append(Change(each.owner, each.pool, columns, path))
    if problems:
        raise Invalid(problems)
    return tuple(result)


def _columns(each: Typed, *, alike: bool) -> Columns | None:
    """Return the columns to set, or None to delete the quota. Raises Invalid."""
    if each.removes:
        return None
    if mixed := [FIELDS[name].path for name, text in each.cells.items() if removes(text)]:
        raise Invalid([
            Problem(path, "deletes a quota whose other values are set", NO_QUOTA, "delete or set the quota")
            for path in mixed
        ])  # fmt: skip
    return columns_of(document(each.cells, alike=alike))


def faults_of(typed: Sequence[Typed], error: Invalid) -> Iterator[dict[str, str]]:
    """Yield each problem, with its cell if there is one."""
    for problem in error.problems:
        message = f"{problem.message}{problem.advice}"
        if problem.path == "expires_at":
            yield {"until": message}
            continue
        number, _, path = problem.path.removeprefix("changes[").partition("].set.")
        if not number.isdecimal() or int(number) >= len(typed):
            yield {"message": f"{problem.path}: {message}"}
            continue
        each = typed[int(number)]
        name = field_at(path, each.cells)
        yield {
            "owner": each.key,
            "pool": each.pool.name,
            "field": name,
            "cell": f"{FIELDS[name].head} of {each.owner.name} on {each.pool.name}",
            "message": message[:1].upper() + message[1:],
        }


def _parse_draft(text: str) -> tuple[list[tuple[str, str, str, str]], dict[str, str]]:
    """Parse the submitted cells and versions. Raises Invalid."""
    garbled = Invalid(
        [Problem("draft", "is not a valid draft", shown(text[:40]), "the JSON that the grid sends")]
    )
    try:
        sent: Any = json.loads(text)
        cells = [(str(key), str(pool), str(name), str(typed)) for key, pool, name, typed in sent["cells"]]
        versions = {str(place): str(version) for place, version in sent["versions"].items()}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise garbled from None
    fine = all(
        name in FIELDS and len(typed) <= LONGEST and "\x00" not in typed for _, _, name, typed in cells
    )
    if not fine:
        raise garbled
    return cells, versions


def _owners(acting: Acting, places: dict[str, dict[str, str]]) -> dict[str, Owner]:
    tops, inner = owners_of(place.partition("/")[0] for place in places)
    result: dict[str, Owner] = {
        f"department-{each.pk}": each for each in departments(acting).filter(pk__in=tops)
    }
    result |= {f"project-{each.pk}": each for each in projects(acting).filter(pk__in=inner)}
    return result
