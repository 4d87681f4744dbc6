"""Revert quota changes, and find later changes that prevent a revert."""

from collections.abc import Iterable, Mapping
from typing import Any

from django.db.models import Max, Q

from berth.core.errors import Conflict, Forbidden, PreconditionFailed
from pools.models import NodePool, QuotaGroup
from projects.actor import Actor
from projects.models import Audit, Department, Project, Quota, QuotaChange
from projects.models.tenants import PoolOrGroup, Tenant
from projects.selectors import VisibleScope
from projects.services.quotas.drafts import NO_VERSION, Draft, QuotaChangeDraft, apply_draft
from projects.services.quotas.values import Columns, parse_columns

Entry = Mapping[str, Any]  # entry of one quota in `QuotaChange.written`
# Kind and ID of the owner, and the IDs of the pool and the quota group.
QuotaKey = tuple[str, int, int | None, int | None]


def revert(*, actor: Actor, change: QuotaChange) -> QuotaChange:
    """Revert a change. Raises the errors of `prepare_revert`."""
    draft, expected_etag = prepare_revert(actor, change)
    try:
        revert_change, _ = apply_draft(actor=actor, draft=draft, expected=expected_etag, reverts=change.pk)
    except PreconditionFailed as conflict:
        prepare_revert(actor, change)  # raises an error that names the later change
        raise PreconditionFailed(
            f"Change {change.pk} cannot be reverted, because one of its quotas was changed again. Edit the "
            "quotas instead.",
            **conflict.extra,
        ) from None
    assert revert_change is not None, "a change without effect is never recorded"
    return revert_change


def prepare_revert(actor: Actor, change: QuotaChange) -> tuple[Draft, str]:
    """Return the draft that reverts a change, and a version tag with the quota versions that the change
    wrote.

    Raises PreconditionFailed if a quota was changed again, Conflict if the change was already reverted or an
    owner or pool was deleted, and Forbidden if a quota is hidden from the user.
    """
    scope = VisibleScope(actor)
    if not all(scope.includes(entry.get("project_id"), entry["department_id"]) for entry in change.written):
        raise Forbidden(
            f"Change {change.pk} includes quotas that you may not set. "
            "Ask a platform admin to revert the change."
        )
    existing_revert = QuotaChange.objects.filter(reverts=change.pk).first()
    if existing_revert is not None:
        raise Conflict(f"Change {change.pk} has already been reverted by change {existing_revert.pk}.")
    draft, tag = inverse_draft(change)
    _check_not_superseded(change)
    return draft, tag


def _check_not_superseded(change: QuotaChange) -> None:
    """Raise PreconditionFailed, listing the quotas that were changed again."""
    latest = latest_changes(change.written)
    later = {
        _quota_key(entry): latest[_quota_key(entry)]
        for entry in change.written
        if latest.get(_quota_key(entry), 0) > change.pk
    }
    if not later:
        return
    changes = QuotaChange.objects.in_bulk(set(later.values()))
    edited = [
        (changes[later[_quota_key(entry)]], entry)
        for edit in changes.values()
        for entry in edit.written
        if later.get(_quota_key(entry)) == edit.pk
    ]
    names = ", ".join(f"{_full_name(entry)} (change {edit.pk} by {edit.actor})" for edit, entry in edited)
    raise PreconditionFailed(
        f"Change {change.pk} cannot be reverted, because its quotas were changed again: {names}. Edit the "
        "quotas instead.",
        changed=[
            {
                "kind": entry["kind"],
                "name": entry["name"],
                "pool": entry["pool"],
                "by": edit.actor,
                "at": edit.at.isoformat(),
                "current": entry["after"],
            }
            for edit, entry in edited
        ],
    )


def superseding_change(
    change: QuotaChange, shown: Iterable[Entry], latest: Mapping[QuotaKey, int]
) -> int | None:
    """Return the ID of the latest change since `change` to a quota in `shown`, or None if there is none."""
    newest = max((latest.get(_quota_key(entry), 0) for entry in shown), default=0)
    return newest if newest > change.pk else None


def latest_changes(entries: Iterable[Entry]) -> dict[QuotaKey, int]:
    """Return the ID of each quota's latest change, even if the quota was deleted and set again."""
    quota_ids: dict[QuotaKey, set[int]] = {}
    for entry in entries:
        quota_ids.setdefault(_quota_key(entry), set()).add(entry["quota_id"])
    for key, quota_id in _stored_quota_ids(quota_ids):
        quota_ids[key].add(quota_id)
    numbers = {str(number) for ids in quota_ids.values() for number in ids}
    audited = Audit.objects.filter(object_type="quota", object_id__in=numbers, change_id__isnull=False)
    latest = dict(audited.order_by().values_list("object_id").annotate(Max("change_id")))
    return {key: max(latest.get(str(number), 0) for number in ids) for key, ids in quota_ids.items()}


def _stored_quota_ids(keys: Iterable[QuotaKey]) -> Iterable[tuple[QuotaKey, int]]:
    requested = set(keys)
    owners = {
        kind: {owner for owner_kind, owner, _, _ in requested if owner_kind == kind}
        for kind in ("department", "project")
    }
    rows = Quota.objects.filter(
        Q(department__in=owners["department"]) | Q(project__in=owners["project"])
    ).order_by()
    for pk, department, project, pool, group in rows.values_list(
        "pk", "department_id", "project_id", "pool_id", "group_id"
    ):
        owner = ("department", department) if project is None else ("project", project)
        if (key := (*owner, pool, group)) in requested:
            yield key, pk


def _quota_key(entry: Entry) -> QuotaKey:
    return entry["kind"], entry[f"{entry['kind']}_id"], entry["pool_id"], entry.get("group_id")


def _full_name(entry: Entry) -> str:
    return f"{entry['name']} in {'quota group' if entry['pool_id'] is None else 'pool'} {entry['pool']}"


def inverse_draft(change: QuotaChange) -> tuple[Draft, str]:
    """Return the draft that reverts a change, and a tag that combines the quota versions from that change.

    Raises Conflict if an owner or pool was deleted.
    """
    changes, versions = [], []
    for number, entry in enumerate(change.written):
        owner, pool = _load_owner(entry), _load_pool_or_group(entry)
        if owner is None or pool is None:
            missing = entry["pool"] if pool is None else entry["name"]
            raise Conflict(
                f"Change {change.pk} cannot be reverted, because {missing} has been deleted. Edit the quotas "
                "instead."
            )
        before = entry["before"]
        changes.append(QuotaChangeDraft(owner, pool, _quota_columns(before), f"changes[{number}]"))
        versions.append(f"{entry['quota_id']}.{entry['version']}" if entry["version"] else NO_VERSION)
    return Draft(tuple(changes), f"Reverts change {change.pk}"), "-".join(versions)


def _load_pool_or_group(entry: Mapping[str, Any]) -> PoolOrGroup | None:
    if entry["pool_id"] is None:
        return QuotaGroup.objects.filter(pk=entry["group_id"]).first()
    return NodePool.objects.filter(pk=entry["pool_id"]).first()


def _load_owner(entry: Mapping[str, Any]) -> Tenant | None:
    if entry["kind"] == "department":
        return Department.objects.filter(pk=entry["department_id"]).first()
    return Project.objects.select_related("department").filter(pk=entry["project_id"]).first()


def _quota_columns(values: Mapping[str, Any] | None) -> Columns | None:
    return None if values is None else parse_columns(values)
