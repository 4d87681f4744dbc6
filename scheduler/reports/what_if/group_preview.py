"""Preview a change to a quota group's pools with the real engine, without storing anything."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from django.utils import timezone

from berth.core.values.amounts import MILLI
from pools.models import NodePool, QuotaGroup
from projects.access import Action, require
from projects.actor import Actor
from projects.models import Department, Project, Quota
from projects.services.quotas.groups import check_pools
from scheduler.engine.layout.layout import Layout
from scheduler.engine.layout.over_quota import PodsOverQuota, QueueInPool, queues_in_pools
from scheduler.engine.model import PoolQuota, Queue, Snapshot
from scheduler.loop.observe.queues import QueueOwner, build_pool_quota
from scheduler.loop.observe.view import ClusterView, observe
from scheduler.reports.explanations.workload import to_api_units
from scheduler.reports.what_if.plan_comparison import Document, PlanChanges, add_plan_differences
from scheduler.reports.what_if.what_if_cache import SPEC_CACHE, shared_cache

NO_PODS = PodsOverQuota()


@dataclass(slots=True, kw_only=True)
class GroupImpact(PlanChanges):
    """Effects of changing a quota group's pools.

    `tag` is the ETag of the group's version. `quotas` lists the queues whose quota in a pool would change.
    """

    tag: str
    pools_before: list[str]
    pools_after: list[str]
    quotas: list[Document] = field(default_factory=list)
    over_quota: list[Document] = field(default_factory=list)

    @property
    def changes_nothing(self) -> bool:
        return self.pools_before == self.pools_after


def preview_group(
    *, actor: Actor, group: QuotaGroup, pools: Sequence[NodePool], now: datetime | None = None
) -> GroupImpact:
    """Return the effects of setting the group's pools to `pools`.

    Raises Forbidden unless the actor is a platform admin, and Invalid if the group cannot contain the pools.
    """
    require(actor, Action.ADMINISTER)
    check_pools(group, pools)
    with shared_cache() as cache:
        view = observe(now or timezone.now(), SPEC_CACHE, cache.observations)
        names = [name for name, pool in view.pools.items() if pool.quota_group_id == group.pk]
        impact = GroupImpact(
            tag=str(group.version),
            pools_before=sorted(names),
            pools_after=sorted(pool.name for pool in pools),
        )
        if not impact.changes_nothing:
            edited = replace_group_pools(view, group, impact.pools_after)
            _compare_queues(impact, view, edited)
            add_plan_differences(impact, actor, view, edited, cache)
    return impact


def replace_group_pools(view: ClusterView, group: QuotaGroup, pools: Collection[str]) -> Snapshot:
    """Return the snapshot with a quota group that contains exactly `pools`."""
    queues = {queue.name: queue for queue in view.snapshot.queues}
    left = {name for name, pool in view.pools.items() if pool.quota_group_id == group.pk} - {*pools}
    for quota in Quota.objects.filter(group=group).select_related("department", "project").order_by("pk"):
        owner = quota.owner
        names = view.queues.departments if isinstance(owner, Department) else view.queues.projects
        if (name := names.get(owner.pk)) is not None:
            queues[name] = _move_quota(queues[name], quota, owner, group.name, pools, left)
    return replace(view.snapshot, queues=tuple(queues[queue.name] for queue in view.snapshot.queues))


def _move_quota(
    queue: Queue,
    quota: Quota,
    owner: Department | Project,
    group: str,
    pools: Iterable[str],
    left: Iterable[str],
) -> Queue:
    pool_quotas = dict(queue.pool_quotas)
    for pool in (*pools, *left):
        present = pool_quotas.get(pool, PoolQuota())
        row = None if pool in left else quota
        moved = build_pool_quota(row, owner.rank, present.usage, "" if row is None else group)
        pool_quotas[pool] = replace(moved, cluster_quotas=present.cluster_quotas)
    return replace(queue, pool_quotas=pool_quotas)


def _compare_queues(impact: GroupImpact, view: ClusterView, edited: Snapshot) -> None:
    pools = {*impact.pools_before, *impact.pools_after}
    before, after = (queues_in_pools(Layout(snapshot), pools) for snapshot in (view.snapshot, edited))
    for (queue, pool), new in sorted(after.items()):
        old, owner = before[queue, pool], view.queues.owners[queue]
        if old.quota != new.quota:
            impact.quotas.append(
                {
                    **_owner_document(owner),
                    "pool": pool,
                    "before": to_api_units(old.quota),
                    "after": to_api_units(new.quota),
                    "allocated": to_api_units(new.allocated),
                }
            )
        for name, more in _pods_newly_over_quota(old, new):
            project, _, workload = name.partition("/")
            impact.over_quota.append(
                {
                    **_owner_document(owner),
                    "pool": pool,
                    "project": project,
                    "workload": workload,
                    "pods": more.pods,
                    "gpus": more.gpu_milli / MILLI,
                }
            )


def _pods_newly_over_quota(old: QueueInPool, new: QueueInPool) -> Iterator[tuple[str, PodsOverQuota]]:
    for name, (pods, gpu_milli) in sorted(new.over_quota.items()):
        already = old.over_quota.get(name, NO_PODS)
        if pods > already.pods:
            yield name, PodsOverQuota(pods - already.pods, gpu_milli - already.gpu_milli)


def _owner_document(owner: QueueOwner) -> Mapping[str, str]:
    return {"kind": "department" if owner.project_id is None else "project", "name": owner.name}
