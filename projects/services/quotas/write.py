"""Set and remove quotas."""

from collections.abc import Mapping
from typing import Any

from django.db import transaction

from berth.core.errors import Invalid, NotFound
from berth.db.writes.references import check_foreign_keys
from pools.quota_lock import lock_pools_and_quotas
from projects.access import Action, require
from projects.actor import Actor
from projects.models import Department, Quota
from projects.models.tenants import PoolOrGroup, Tenant, owner_columns, pool_or_group_columns
from projects.services.quotas.changes import WrittenQuota, record_change
from projects.services.quotas.pools_and_groups import overlap_problem
from projects.services.quotas.values import parse_columns, quota_values, value_problems
from projects.services.quotas.versions import check_version, next_version


def set_quota(
    *,
    actor: Actor,
    owner: Tenant,
    pool: PoolOrGroup,
    values: Mapping[str, Any],
    expected_version: int | None = None,
) -> Quota:
    """Create or change a quota in a pool or a quota group.

    `values` have the keys and units of documents (gpu, limit, weight, ...). Missing keys are unchanged. If
    `expected_version` is 0, the quota must not exist yet. Raises Invalid, PreconditionFailed, NotFound or
    Forbidden.
    """
    require_quota_permission(actor, owner)
    columns = parse_columns(values)
    place = {**pool_or_group_columns(pool), **owner_columns(owner)}
    with check_foreign_keys(f"{owner.name} or the {pool.kind_and_name}", created="this quota"):
        lock_pools_and_quotas()
        quota = Quota.objects.select_for_update(of=("self",)).filter(**place).first()
        check_version(quota, expected_version, quota_values)
        if quota is None and (problem := overlap_problem(owner, pool)):
            raise Invalid([problem])
        stored, quota = quota, quota or Quota(version=0, **place)
        before = quota_values(stored) if stored else None
        for column, value in columns.items():
            setattr(quota, column, value)
        if problems := value_problems(quota):
            raise Invalid(problems)
        if before != quota_values(quota):
            quota.version = next_version(quota)
            quota.save()
            record_change(actor, [WrittenQuota(quota, owner, before, quota_values(quota))])
    return quota


def remove_quota(*, actor: Actor, quota: Quota, expected_version: int | None = None) -> None:
    """Remove a quota. The owner then has a quota of 0 and no limit in the quota's pools."""
    owner = quota.owner
    require_quota_permission(actor, owner)
    with transaction.atomic():
        locked = Quota.objects.select_for_update(of=("self",)).filter(pk=quota.pk).first()
        if locked is None:
            raise NotFound("This quota has been removed.")
        check_version(locked, expected_version, quota_values)
        record_change(actor, [WrittenQuota(locked, owner, quota_values(locked), None)])
        locked.delete()


def require_quota_permission(actor: Actor, owner: Tenant) -> None:
    """Raise Forbidden unless the user may set the owner's quotas.

    Only platform admins may set those of departments.
    """
    require(actor, Action.SET_QUOTA, owner)
    if isinstance(owner, Department):
        require(actor, Action.ADMINISTER)
