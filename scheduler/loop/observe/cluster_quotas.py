"""Quotas that the pools' clusters enforce in addition to Berth's quotas."""

from collections.abc import Iterable, Mapping

from pools.models import NodePool
from pools.selectors import project_namespace
from scheduler.engine.model import ClusterQuota

QuotasByProject = Mapping[str, tuple[ClusterQuota, ...]]


def cluster_quotas(pools: Iterable[NodePool], projects: Iterable[str]) -> Mapping[str, QuotasByProject]:
    """Return the stored quotas, keyed by pool and project. Pools and projects without quotas are omitted."""
    limited = [pool for pool in pools if pool.cluster_quotas]
    projects_by_namespace = {project_namespace(project): project for project in projects} if limited else {}
    result: dict[str, dict[str, tuple[ClusterQuota, ...]]] = {}
    for pool in limited:
        for stored in pool.cluster_quotas:
            project = projects_by_namespace.get(stored["namespace"])
            if project is not None:
                by_project = result.setdefault(pool.name, {})
                by_project[project] = (*by_project.get(project, ()), ClusterQuota(**stored))
    return result
