"""Detect owners with several quotas for the same pool, such as a pool quota and a group quota."""

from collections.abc import Collection

from django.db.models import QuerySet

from berth.core.problems import Problem
from pools.models import NodePool, QuotaGroup
from projects.models import Quota
from projects.models.tenants import PoolOrGroup, Tenant, owner_columns


def find_pool_or_group(name: str) -> PoolOrGroup | None:
    """Return the pool or quota group with the given name, or None. Names are unique across both."""
    return NodePool.objects.filter(name=name).first() or QuotaGroup.objects.filter(name=name).first()


def overlap_problem(
    owner: Tenant, place: PoolOrGroup, *, path: str = "pool", removed: Collection[PoolOrGroup] = ()
) -> Problem | None:
    """Return a problem if the owner has another quota that applies to the same pool, else None.

    The quotas in `removed` are ignored.
    """
    rows = overlapping_quotas(place).filter(**owner_columns(owner))
    others = [quota.pool_or_group for quota in rows if quota.pool_or_group not in removed]
    return build_overlap_problem(path, owner, place, others) if others else None


def build_overlap_problem(
    path: str, owner: Tenant, place: PoolOrGroup, others: Collection[PoolOrGroup]
) -> Problem:
    """Return a validation error that lists the owner's other quotas for the same pools."""
    return Problem(
        path,
        f"overlaps with {owner.name}'s quota in {' and '.join(other.kind_and_name for other in others)}",
        place.name,
        "one quota for each pool. Remove the other one in the same change with `berth quota apply`",
    )


def is_pool_in_group(one: PoolOrGroup, other: PoolOrGroup) -> bool:
    """Return whether one argument is a quota group and the other is one of its pools."""
    pool, group = (one, other) if isinstance(one, NodePool) else (other, one)
    if not isinstance(pool, NodePool) or not isinstance(group, QuotaGroup):
        return False
    return group.pools.filter(pk=pool.pk).exists()


def overlapping_quotas(place: PoolOrGroup) -> QuerySet[Quota]:
    """Return the quotas that overlap with a pool or quota group.

    These are the quotas of the pool's group, or the quotas of the group's pools.
    """
    rows = Quota.objects.select_related("pool", "group", "department", "project").order_by("pk")
    if isinstance(place, QuotaGroup):
        return rows.filter(pool__quota_group=place)
    return rows.filter(group__pools=place)
