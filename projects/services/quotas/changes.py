"""Record a quota change with its audit rows, and wake the scheduler."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from berth.db.wake import wake
from projects.actor import Actor
from projects.models import Department, Project, Quota, QuotaChange
from projects.services import announce, audit
from projects.services.quotas.versions import store_removed_version


@dataclass(frozen=True, slots=True)
class WrittenQuota:
    """Document values of a quota before and after a change, each None if there is no quota."""

    quota: Quota
    owner: Department | Project
    before: dict[str, Any] | None
    after: dict[str, Any] | None


def record(
    actor: Actor, written: Sequence[WrittenQuota], *, comment: str = "", reverts: int | None = None
) -> QuotaChange:
    """Record a change in the caller's transaction, after rows are stored and before rows are deleted."""
    change = QuotaChange.objects.create(
        actor=actor.name, comment=comment, reverts=reverts, written=[_entry(each) for each in written]
    )
    for each in written:
        _audit(actor, each, change.pk)
        if each.after is None:
            store_removed_version(each.quota)
        announce.tenants_changed(**_ids(each.owner))
    wake("scheduler")
    return change


def _audit(actor: Actor, each: WrittenQuota, change_id: int) -> None:
    owner_columns: dict[str, Any] = (
        {"department": each.owner} if isinstance(each.owner, Department) else {"project": each.owner}
    )
    if each.after is None:
        action, before, after = "remove_quota", each.before, None
    else:
        action = "set_quota"
        before, after = audit.changed_values(each.before or {}, each.after)
    audit.write_entry(
        actor, action, each.quota, before=before if each.before else None, after=after,
        change_id=change_id, **owner_columns,
    )  # fmt: skip


def _entry(each: WrittenQuota) -> dict[str, Any]:
    """Describe a quota by ids, and by names that can be shown after the objects are deleted."""
    return {
        **_ids(each.owner),
        "kind": "department" if isinstance(each.owner, Department) else "project",
        "name": each.owner.name,
        "pool_id": each.quota.pool_id,
        "pool": each.quota.pool.name,
        "quota_id": each.quota.pk,
        "version": each.quota.version if each.after is not None else 0,
        "before": each.before,
        "after": each.after,
    }


def _ids(owner: Department | Project) -> dict[str, Any]:
    if isinstance(owner, Department):
        return {"department_id": owner.pk}
    return {"department_id": owner.department_id, "project_id": owner.pk}
