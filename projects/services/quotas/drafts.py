"""Apply quota drafts atomically.

A draft is checked against the quota versions that its author saw. The draft's version tag contains one
version per quota, so that a conflict error can name the quotas that have changed.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Q

from berth.core.errors import Invalid, PreconditionFailed
from berth.core.problems import Problem
from berth.db.writes.references import check_foreign_keys
from pools.models import QuotaGroup
from pools.quota_lock import lock_pools_and_quotas
from projects.actor import Actor
from projects.models import Audit, Department, Quota, QuotaChange, QuotaExpiry
from projects.models.tenants import (
    PoolOrGroup,
    Tenant,
    owner_columns,
    owner_kind,
    pool_or_group_columns,
)
from projects.services.quotas.changes import WrittenQuota, record_change
from projects.services.quotas.pools_and_groups import build_overlap_problem, is_pool_in_group, overlap_problem
from projects.services.quotas.values import Columns, quota_values, value_problems
from projects.services.quotas.versions import next_version
from projects.services.quotas.write import require_quota_permission

NO_VERSION = "0.0"

# IDs of the department, project, pool and quota group.
QuotaKey = tuple[int | None, int | None, int | None, int | None]


@dataclass(frozen=True, slots=True)
class QuotaChangeDraft:
    """Drafted change of one quota in a pool or a quota group.

    `columns` is None if the quota is removed. `path` is the change's location in the document.
    """

    owner: Tenant
    pool: PoolOrGroup
    columns: Columns | None
    path: str

    @property
    def key_columns(self) -> dict[str, Any]:
        return {**pool_or_group_columns(self.pool), **owner_columns(self.owner)}


@dataclass(frozen=True, slots=True)
class Draft:
    changes: tuple[QuotaChangeDraft, ...]
    comment: str = ""
    expires_at: datetime | None = None  # time at which quotas are reverted unless they have been edited again


@dataclass(frozen=True, slots=True)
class DraftedChange:
    """Change in a draft, with the quota before and after.

    `after` is unsaved, or None if the quota is removed.
    """

    change: QuotaChangeDraft
    before: Quota | None
    after: Quota | None

    @property
    def is_changed(self) -> bool:
        return _quota_values_or_none(self.before) != _quota_values_or_none(self.after)


def compare_with_stored_quotas(draft: Draft, *, lock: bool = False) -> list[DraftedChange]:
    """Compare each change with the stored quota. Raises Invalid with all problems in the new values."""
    stored = _changes_with_stored_quotas(draft, lock=lock)
    drafted = [DraftedChange(change, before, _edited_quota(change, before)) for change, before in stored]
    problems = [
        Problem(f"{item.change.path}.set.{problem.path}", problem.message, problem.received, problem.allowed)
        for item in drafted
        for problem in (value_problems(item.after) if item.after else ())
    ]
    problems += _overlap_problems(drafted)
    if problems:
        raise Invalid(problems)
    return drafted


def _overlap_problems(drafted: Sequence[DraftedChange]) -> Iterator[Problem]:
    """Yield a problem for each new quota whose owner has a second quota for the same pool."""
    added = [item.change for item in drafted if item.after is not None and item.before is None]
    removed = {(item.change.owner, item.change.pool) for item in drafted if item.after is None}
    for change in added:
        owner = change.owner
        others = [
            other.pool
            for other in added
            if other.owner == owner and is_pool_in_group(other.pool, change.pool)
        ]
        mine = {place for removed_owner, place in removed if removed_owner == owner}
        if others:
            yield build_overlap_problem(f"{change.path}.pool", owner, change.pool, others)
        elif problem := overlap_problem(owner, change.pool, path=f"{change.path}.pool", removed=mine):
            yield problem


def version_tag_before_draft(drafted: Sequence[DraftedChange]) -> str:
    """Return a tag that combines the versions of the drafted quotas before the draft, in draft order."""
    return "-".join(version_tag(item.before) for item in drafted)


def version_tag_after_draft(drafted: Sequence[DraftedChange]) -> str:
    """Return a version tag with the version that the draft gave each quota, even if the quota has changed
    again since.
    """
    return "-".join(version_tag(item.after) for item in drafted)


def apply_draft(
    *, actor: Actor, draft: Draft, expected: str | None = None, reverts: int | None = None
) -> tuple[QuotaChange | None, list[DraftedChange]]:
    """Apply all changes of a draft, or none.

    Return the recorded change (None if nothing changed) and the drafted changes. `expected` is the version
    tag that the author saw. Raises PreconditionFailed, Invalid, NotFound or Forbidden.
    """
    for owner in dict.fromkeys(change.owner for change in draft.changes):
        require_quota_permission(actor, owner)
    with check_foreign_keys("One of its owners or pools", created="one of these quotas"):
        lock_pools_and_quotas()
        drafted = compare_with_stored_quotas(draft, lock=True)
        if expected is not None and expected != version_tag_before_draft(drafted):
            raise _conflict_error(drafted, expected)
        changed = [item for item in drafted if item.is_changed]
        return (_write_changes(actor, changed, draft, reverts) if changed else None), drafted


def _write_changes(
    actor: Actor, changed: Sequence[DraftedChange], draft: Draft, reverts: int | None
) -> QuotaChange:
    written = []
    for item in changed:
        quota = item.after or item.before
        assert quota is not None, "a change has a quota before or after it"
        if item.after is not None:
            quota.version = next_version(quota)
            quota.save()
        written.append(
            WrittenQuota(
                quota,
                item.change.owner,
                _quota_values_or_none(item.before),
                _quota_values_or_none(item.after),
            )
        )
    change = record_change(actor, written, comment=draft.comment, reverts=reverts)
    if draft.expires_at is not None:
        QuotaExpiry.objects.create(change=change, due_at=draft.expires_at)
    for item in changed:
        if item.after is None and item.before is not None:
            item.before.delete()
    return change


def _changes_with_stored_quotas(draft: Draft, *, lock: bool) -> list[tuple[QuotaChangeDraft, Quota | None]]:
    by_key = stored_quotas([(change.owner, change.pool) for change in draft.changes], lock=lock)
    return [(change, by_key.get(quota_key(change.owner, change.pool))) for change in draft.changes]


def stored_quotas(
    places: Sequence[tuple[Tenant, PoolOrGroup]], *, lock: bool = False
) -> dict[QuotaKey, Quota]:
    """Return the stored quotas, keyed by `QuotaKey`. If `lock` is set, lock their rows in a fixed order."""
    requested = {quota_key(owner, place) for owner, place in places}
    departments, projects, pools, groups = ({key[part] for key in requested} - {None} for part in range(4))
    candidates = Quota.objects.filter(Q(pool__in=pools) | Q(group__in=groups)).filter(
        Q(department__in=departments) | Q(project__in=projects)
    )
    keys = candidates.order_by().values_list("pk", "department_id", "project_id", "pool_id", "group_id")
    rows = Quota.objects.filter(pk__in=[pk for pk, *key in keys if tuple(key) in requested])
    rows = rows.select_related("department", "project__department", "pool", "group")
    if lock:
        rows = rows.select_for_update(of=("self",))
    return {
        (row.department_id, row.project_id, row.pool_id, row.group_id): row for row in rows.order_by("pk")
    }


def quota_key(owner: Tenant, place: PoolOrGroup) -> QuotaKey:
    where = (None, place.pk) if isinstance(place, QuotaGroup) else (place.pk, None)
    return (owner.pk, None, *where) if isinstance(owner, Department) else (None, owner.pk, *where)


def _edited_quota(change: QuotaChangeDraft, before: Quota | None) -> Quota | None:
    if change.columns is None:
        return None
    after = Quota(version=0, **change.key_columns)
    if before is not None:
        after = Quota(**{field.attname: getattr(before, field.attname) for field in Quota._meta.fields})
        after._state.adding = False
        for name, value in change.key_columns.items():
            setattr(after, name, value)
    for column, value in change.columns.items():
        setattr(after, column, value)
    return after


def _quota_values_or_none(quota: Quota | None) -> dict[str, Any] | None:
    return None if quota is None else quota_values(quota)


def version_tag(quota: Quota | None) -> str:
    return NO_VERSION if quota is None else f"{quota.pk}.{quota.version}"


def _conflict_error(drafted: Sequence[DraftedChange], expected: str) -> PreconditionFailed:
    """Return an error that lists the quotas that have changed since the draft began, and who changed them."""
    expected_versions = expected.split("-")
    if len(expected_versions) != len(drafted):
        return PreconditionFailed("If-Match does not belong to this draft. Preview the draft again.")
    outdated = [
        item
        for item, version in zip(drafted, expected_versions, strict=True)
        if version != version_tag(item.before)
    ]
    changed = [_last_change(item) for item in outdated]
    names = ", ".join(
        f"{entry['name']} in {item.change.pool.kind_and_name} (by {entry['by']})"
        for item, entry in zip(outdated, changed, strict=True)
    )
    return PreconditionFailed(
        f"Changed since your preview: {names}. Preview the draft again.",
        changed=changed,
        current=version_tag_before_draft(drafted),
    )


def _last_change(item: DraftedChange) -> dict[str, Any]:
    owner, rows = item.change.owner, Audit.objects.filter(object_type="quota")
    if item.before is not None:
        last = rows.filter(object_id=str(item.before.pk)).first()
    else:
        last = rows.filter(
            object_name=f"{owner} in {item.change.pool.kind_and_name}", action="remove_quota"
        ).first()
    return {
        "kind": owner_kind(owner),
        "name": owner.name,
        "pool": item.change.pool.name,
        "by": last.actor if last else "unknown",
        "at": last.at.isoformat() if last else None,
        "current": _quota_values_or_none(item.before),
    }
