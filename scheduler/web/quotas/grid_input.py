"""Parse edited cells in the quota grid, and assign errors to cells."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from berth.core.errors import Invalid
from berth.core.problems import Problem, format_value
from pools.models import NodePool, QuotaGroup
from projects.actor import Actor
from projects.models.tenants import PoolOrGroup, Tenant
from projects.selectors import departments, projects
from projects.services.quotas import Columns, parse_columns, require_quota_permission
from projects.services.quotas.drafts import QuotaChangeDraft, quota_key, stored_quotas
from projects.web.quotas.cells import (
    FIELDS,
    NO_QUOTA,
    allowed_text,
    build_document,
    field_for_path,
    removes_quota,
)
from scheduler.web.quotas.grid_table import parse_owner_keys

NOT_VALID = ("is not a valid ", "has too many decimals", "is not a boolean")
MAX_QUOTAS = 1000
MAX_CELL_LENGTH = 60  # maximum number of characters per cell


@dataclass(frozen=True, slots=True)
class EditedQuota:
    """Edited cells of one quota, and the quota version that the edits are based on."""

    key: str
    owner: Tenant
    pool: PoolOrGroup
    cells: dict[str, str]
    version: str

    @property
    def place(self) -> str:
        return f"{self.key}/{self.pool.name}"

    @property
    def is_removal(self) -> bool:
        return all(map(removes_quota, self.cells.values()))


def parse_edits(actor: Actor, text: str) -> list[EditedQuota]:
    """Parse `{"cells": [[owner, pool, field, text], ...], "versions": {"owner/pool": version}}`.

    Raises Invalid if the input is malformed, empty or too long, or names an unknown quota. Raises Forbidden
    if the user may not set one of the quotas.
    """
    cells, versions = _parse_draft(text)
    result: dict[str, dict[str, str]] = {}
    for key, pool, name, cell_text in cells:
        result.setdefault(f"{key}/{pool}", {})[name] = cell_text
    if not result:
        raise Invalid([Problem("draft", "No changes to apply", "", "at least one cell")])
    if len(result) > MAX_QUOTAS:
        allowed = f"{MAX_QUOTAS} at a time"
        raise Invalid([Problem("draft", "changes too many quotas", format_value(len(result)), allowed)])
    owners, pools = _find_owners(actor, result), _pools_and_groups_by_name()
    typed: list[EditedQuota] = []
    for place, values in sorted(result.items()):
        key, _, pool = place.partition("/")
        if key not in owners or pool not in pools:
            raise Invalid(
                [Problem("draft", "names an unknown quota", format_value(place), "a quota in the grid")]
            )
        typed.append(EditedQuota(key, owners[key], pools[pool], values, versions.get(place, "")))
    for owner in dict.fromkeys(edited.owner for edited in typed):
        require_quota_permission(actor, owner)
    return typed


def build_changes(typed: Sequence[EditedQuota]) -> tuple[QuotaChangeDraft, ...]:
    """Convert edits to quota changes. If any cell has an error, raises Invalid with all errors."""
    stored, problems, result = stored_quotas([(edited.owner, edited.pool) for edited in typed]), [], []
    for number, edited in enumerate(typed):
        path, quota = f"changes[{number}]", stored.get(quota_key(edited.owner, edited.pool))
        equal_weights = quota is None or quota.weight_gpu == quota.weight_cpu == quota.weight_memory
        try:
            columns = _quota_columns(edited, equal_weights=equal_weights)
        except Invalid as error:
            problems += [
                Problem(f"{path}.set.{fault.path}", fault.message, fault.received, fault.allowed)
                for fault in error.problems
            ]
        else:
            result.append(QuotaChangeDraft(edited.owner, edited.pool, columns, path))
    if problems:
        raise Invalid(problems)
    return tuple(result)


def _quota_columns(edited: EditedQuota, *, equal_weights: bool) -> Columns | None:
    """Return the columns to set, or None to delete the quota. Raises Invalid if a cell has an error."""
    if edited.is_removal:
        return None
    if mixed := [FIELDS[name].path for name, text in edited.cells.items() if removes_quota(text)]:
        raise Invalid([
            Problem(path, "deletes a quota whose other values are set", NO_QUOTA, "delete or set the quota")
            for path in mixed
        ])  # fmt: skip
    return parse_columns(build_document(edited.cells, equal_weights=equal_weights))


def errors_by_cell(typed: Sequence[EditedQuota], error: Invalid) -> Iterator[dict[str, str]]:
    """Yield each error as a JSON object. If the error is about one cell, the object names the cell."""
    for problem in error.problems:
        message = f"{problem.message}{problem.advice}"
        if problem.path == "expires_at":
            yield {"until": message}
            continue
        number, _, path = problem.path.removeprefix("changes[").partition("].set.")
        if not number.isdecimal() or int(number) >= len(typed):
            yield {"message": f"{problem.path}: {message}"}
            continue
        edited = typed[int(number)]
        name = field_for_path(path, edited.cells)
        yield {
            "owner": edited.key,
            "pool": edited.pool.name,
            "field": name,
            "cell": f"{FIELDS[name].head} of {edited.owner.name} in {edited.pool.kind_and_name}",
            "message": _cell_sentence(problem, name, edited.cells.get(name, "")),
        }


def _cell_sentence(problem: Problem, name: str, text: str) -> str:
    if problem.message.startswith(NOT_VALID):
        received = f"“{text[:40]}” is not valid" if text else "A value is required"
        return f"{received}. Enter {allowed_text(FIELDS[name])}."
    message = f"{problem.message[:1].upper()}{problem.message[1:]}."
    return f"{message} Allowed: {problem.allowed}." if problem.allowed else message


def _parse_draft(text: str) -> tuple[list[tuple[str, str, str, str]], dict[str, str]]:
    """Parse the submitted cells and versions. Raises Invalid for malformed input."""
    malformed = Invalid(
        [Problem("draft", "is not a valid draft", format_value(text[:40]), "the JSON that the grid sends")]
    )
    try:
        sent: Any = json.loads(text)
        cells = [(str(key), str(pool), str(name), str(typed)) for key, pool, name, typed in sent["cells"]]
        versions = {str(place): str(version) for place, version in sent["versions"].items()}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise malformed from None
    is_valid = all(
        name in FIELDS and len(typed) <= MAX_CELL_LENGTH and "\x00" not in typed
        for _, _, name, typed in cells
    )
    if not is_valid:
        raise malformed
    return cells, versions


def _pools_and_groups_by_name() -> dict[str, PoolOrGroup]:
    pools: dict[str, PoolOrGroup] = {pool.name: pool for pool in NodePool.objects.all()}
    return pools | {group.name: group for group in QuotaGroup.objects.all()}


def _find_owners(actor: Actor, places: dict[str, dict[str, str]]) -> dict[str, Tenant]:
    tops, inner = parse_owner_keys(place.partition("/")[0] for place in places)
    result: dict[str, Tenant] = {
        f"department-{department.pk}": department for department in departments(actor).filter(pk__in=tops)
    }
    result |= {f"project-{project.pk}": project for project in projects(actor).filter(pk__in=inner)}
    return result
