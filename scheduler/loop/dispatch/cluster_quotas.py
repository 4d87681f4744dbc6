"""Store the quotas that the pools' clusters enforce in addition to Berth's quotas."""

from collections.abc import Iterable
from dataclasses import asdict

from berth.db.loops.lease import fenced_transaction
from pools.models import NodePool
from pools.runtimes.base import RuntimeFailure
from scheduler.loop.context import SchedulerContext


def record_cluster_quotas(pools: Iterable[NodePool], context: SchedulerContext) -> bool:
    """Store the quotas of each pool's cluster. Return whether any quota changed."""
    changed = []
    for pool in pools:
        try:
            current = context.runtimes(pool).get_cluster_quotas(pool.name)
        except (RuntimeFailure, LookupError, OSError):
            continue
        columns = [asdict(quota) for quota in current.quotas], current.obstacle
        if columns != (pool.cluster_quotas, pool.cluster_quotas_obstacle):
            changed.append((pool, columns))
    if not changed:
        return False
    with fenced_transaction(context.held_lease):
        for pool, (quotas, obstacle) in changed:
            rows = NodePool.objects.filter(pk=pool.pk)
            rows.update(cluster_quotas=quotas, cluster_quotas_obstacle=obstacle)
    for pool, columns in changed:
        pool.cluster_quotas, pool.cluster_quotas_obstacle = columns
    return True
