"""Pools and quota groups on the quota pages."""

from collections.abc import Iterable

from pools.models import NodePool, QuotaGroup
from projects.access import visible_pools
from projects.actor import Actor
from projects.models import Quota
from projects.models.tenants import PoolOrGroup
from projects.selectors import quota_groups


def pools_and_groups_to_show(actor: Actor) -> list[PoolOrGroup]:
    """Return the quota groups by name, then the pools by name.

    Pools in a group come last, and are included only if they have quotas of their own.
    """
    pools = list(visible_pools(actor).order_by("name"))
    grouped = [pool for pool in pools if pool.quota_group_id is not None]
    if not grouped:
        return [*_visible_groups(actor), *pools]
    with_quota = set(Quota.objects.filter(pool__in=grouped).order_by().values_list("pool_id", flat=True))
    alone = [pool for pool in pools if pool.quota_group_id is None]
    return [*_visible_groups(actor), *alone, *(pool for pool in grouped if pool.pk in with_quota)]


def _visible_groups(actor: Actor) -> list[QuotaGroup]:
    return list(quota_groups(actor).prefetch_related(None))


def find_pool_or_group(actor: Actor, name: str) -> PoolOrGroup | None:
    """Return the visible pool or quota group with this name, or None."""
    return visible_pools(actor).filter(name=name).first() or quota_groups(actor).filter(name=name).first()


def member_pools(place: PoolOrGroup) -> list[NodePool]:
    """Return the pool itself, or the group's pools sorted by name."""
    return [place] if isinstance(place, NodePool) else list(place.pools.order_by("name"))


def group_members(places: Iterable[PoolOrGroup]) -> dict[str, list[str]]:
    """Return the names of each group's pools, keyed by group name."""
    groups = {place.pk: place.name for place in places if isinstance(place, QuotaGroup)}
    members: dict[str, list[str]] = {name: [] for name in groups.values()}
    if groups:
        rows = NodePool.objects.filter(quota_group__in=groups).order_by("name")
        for group, pool in rows.values_list("quota_group_id", "name"):
            members[groups[group]].append(pool)
    return members
