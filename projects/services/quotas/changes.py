"""Record a quota change with its audit rows, and wake the scheduler."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from berth.db.wake import wake
from projects.acting import Acting
from projects.models import Department, Project, Quota, QuotaChange
from projects.services import announce, audit
from projects.services.quotas.versions import remember_removed


@dataclass(frozen=True, slots=True)
class Written:
    """One quota before and after a change, as document values; None if there was or is no quota."""

    quota: Quota
    owner: Department | Project
    before: dict[str, Any] | None
    after: dict[str, Any] | None


def record(
    acting: Acting, written: Sequence[Written], *, comment: str = "", reverts: int | None = None
) -> QuotaChange:
    """Record a change in the caller's transaction, after rows are stored and before rows are deleted."""
    change = QuotaChange.objects.create(
        actor=acting.name, comment=comment, reverts=reverts, written=[_entry(each) for each in written]
    )
    for each in written:
        _audit(acting, each, change.pk)
        if each.after is None:
            remember_removed(each.quota)
        announce.tenants_changed(**_ids(each.owner))
    wake("scheduler")
    return change


def _audit(acting: Acting, each: Written, change_id: int) -> None:
    owner_columns: dict[str, Any] = (
        {"department": each.owner} if isinstance(each.owner, Department) else {"project": each.owner}
    )
    if each.after is None:
        action, before, after = "remove_quota", each.before, None
    else:
        action = "set_quota"
        before, after = audit.differences(each.before or {}, each.after)
    audit.write_down(
        acting, action, each.quota, before=before if each.before else None, after=after,
        change_id=change_id, **owner_columns,
    )  # fmt: skip


def _entry(each: Written) -> dict[str, Any]:
    """Describe a quota by ids for lookups and by names for display: history outlives its objects."""
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
