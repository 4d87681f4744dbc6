"""Prevent pools on the same cluster from using the same cluster quota in one cycle."""

from collections.abc import Mapping, Sequence

from scheduler.engine.model import Snapshot
from scheduler.engine.plan import Bundle, Place
from scheduler.reports.visibility import project_from_handle

QuotaKey = tuple[str, str, str, str]  # UID, namespace and name of a cluster quota, and its resource


def select_within_shared_quotas(bundles: Sequence[Bundle], snapshot: Snapshot) -> tuple[Bundle, ...]:
    """Return the bundles that can be committed together.

    If two pools use the same cluster quota, only the first pool's bundles are returned.
    """
    quotas = _quotas_by_project(snapshot)
    if not quotas:
        return tuple(bundles)
    pools: dict[QuotaKey, str] = {}
    selected = []
    for bundle in bundles:
        projects = {project_from_handle(step.workload) for step in bundle.steps if isinstance(step, Place)}
        keys = {key for project in projects for key in quotas.get((project, bundle.pool), ())}
        if all(pools.get(key, bundle.pool) == bundle.pool for key in keys):
            pools |= dict.fromkeys(keys, bundle.pool)
            selected.append(bundle)
    return tuple(selected)


def _quotas_by_project(snapshot: Snapshot) -> Mapping[tuple[str, str], Sequence[QuotaKey]]:
    """Return the cluster quotas, keyed by project and pool."""
    return {
        (queue.name, pool): [(quota.uid, quota.namespace, quota.name, quota.resource) for quota in quotas]
        for queue in snapshot.queues
        for pool, pool_quota in queue.pool_quotas.items()
        if (quotas := pool_quota.cluster_quotas)
    }
