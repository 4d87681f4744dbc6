"""Record a quota change with its audit rows, and wake the scheduler."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from berth.db.loops.wake import wake
from projects.actor import Actor
from projects.models import Quota, QuotaChange
from projects.models.tenants import Tenant, owner_columns, owner_ids, owner_kind
from projects.services import announce, audit
from projects.services.quotas.versions import store_removed_version


@dataclass(frozen=True, slots=True)
class WrittenQuota:
    """Quota before and after a change, as document values. None means that there was no quota."""

    quota: Quota
    owner: Tenant
    before: dict[str, Any] | None
    after: dict[str, Any] | None


def record_change(
    actor: Actor, written: Sequence[WrittenQuota], *, comment: str = "", reverts: int | None = None
) -> QuotaChange:
    """Record a change in the caller's transaction. Must be called after rows are stored and before rows are
    deleted.
    """
    change = QuotaChange.objects.create(
        actor=actor.name, comment=comment, reverts=reverts, written=[_describe(entry) for entry in written]
    )
    for entry in written:
        _write_audit_entry(actor, entry, change.pk)
        if entry.after is None:
            store_removed_version(entry.quota)
        announce.tenants_changed(**owner_ids(entry.owner))
    wake("scheduler")
    return change


def _write_audit_entry(actor: Actor, entry: WrittenQuota, change_id: int) -> None:
    action: audit.AuditAction = "set_quota"
    if entry.after is None:
        action, before, after = "remove_quota", entry.before, None
    else:
        before, after = audit.changed_values(entry.before or {}, entry.after)
    audit.write_entry(
        actor, action, entry.quota, before=before if entry.before else None, after=after,
        change_id=change_id, **owner_columns(entry.owner),
    )  # fmt: skip


def _describe(entry: WrittenQuota) -> dict[str, Any]:
    """Describe a quota by IDs and names, because its owner and its pool may be deleted later."""
    return {
        **owner_ids(entry.owner),
        "kind": owner_kind(entry.owner),
        "name": entry.owner.name,
        "pool_id": entry.quota.pool_id,
        "group_id": entry.quota.group_id,
        "pool": entry.quota.pool_or_group.name,
        "quota_id": entry.quota.pk,
        "version": entry.quota.version if entry.after is not None else 0,
        "before": entry.before,
        "after": entry.after,
    }
