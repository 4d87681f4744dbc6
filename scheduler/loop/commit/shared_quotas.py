"""Prevent several pools on one cluster from filling the same quota of the cluster in one cycle."""

from collections.abc import Mapping, Sequence

from scheduler.engine.model import Snapshot
from scheduler.engine.plan import Bundle, Place
from scheduler.reports.visibility import project_in_handle

QuotaKey = tuple[str, str, str]  # namespace, name and resource


def select_within_shared_quotas(bundles: Sequence[Bundle], snapshot: Snapshot) -> tuple[Bundle, ...]:
    """Return the bundles that can be committed together.

    The engine decides about each pool separately. If bundles of two pools add pods to the same quota of a
    cluster, this function keeps those of the first pool. The next cycle knows what they use.
    """
    quotas = _quotas_by_project(snapshot)
    if not quotas:
        return tuple(bundles)
    pools: dict[QuotaKey, str] = {}
    selected = []
    for bundle in bundles:
        projects = {project_in_handle(step.workload) for step in bundle.steps if isinstance(step, Place)}
        keys = {key for project in projects for key in quotas.get((project, bundle.pool), ())}
        if all(pools.get(key, bundle.pool) == bundle.pool for key in keys):
            pools |= dict.fromkeys(keys, bundle.pool)
            selected.append(bundle)
    return tuple(selected)


def _quotas_by_project(snapshot: Snapshot) -> Mapping[tuple[str, str], Sequence[QuotaKey]]:
    """Return the quotas of clusters by project and pool."""
    return {
        (queue.name, pool): [(quota.namespace, quota.name, quota.resource) for quota in quotas]
        for queue in snapshot.queues
        for pool, entitlement in queue.entitlements.items()
        if (quotas := entitlement.cluster_quotas)
    }
