"""Connect to the clusters of Kubernetes pools with the credentials stored in pool rows."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from functools import lru_cache

from berth.core.errors import Invalid
from berth.core.problems import Problem
from berth.db.loops.reconnect import reconnect_after_failure
from pools.joining.sealed import UnsealError, seal, unseal
from pools.kubernetes.api_server.api import Api
from pools.kubernetes.api_server.credentials import Connection, in_cluster_connection, parse_kubeconfig
from pools.kubernetes.cluster import Clusters, PoolAccess, UnusableCluster
from pools.kubernetes.settings import THROUGH_API_SERVER, KubernetesSettings, kubernetes_settings
from pools.models import NodePool
from pools.providers.base import ProviderError, ProviderErrorKind

KUBERNETES = NodePool.Provider.KUBERNETES.value
# errors caused by invalid settings or credentials
UNUSABLE = (Invalid, UnsealError, LookupError, OSError, ValueError)
COLUMNS = ("name", "provider_settings", "kubeconfig_sealed")


def set_kubeconfig(pool: NodePool, kubeconfig: str | None) -> None:
    """Set the pool's kubeconfig without saving the pool.

    Raises Invalid if it cannot be used or the provider is not Kubernetes.
    """
    if pool.provider != KUBERNETES:
        message = f"is not used by the provider {pool.provider}"
        raise Invalid([Problem("kubeconfig", message, "", "the provider kubernetes")])
    if kubeconfig:
        Api(parse_kubeconfig(kubeconfig, kubernetes_settings(pool.provider_settings).context)).close()
    pool.kubeconfig_sealed = seal(kubeconfig) if kubeconfig else ""


def check_credentials(pool: NodePool) -> None:
    """Raise Invalid unless a Kubernetes pool has either a kubeconfig or the setting `in_cluster`, but not
    both.
    """
    if pool.provider != KUBERNETES:
        return
    settings = kubernetes_settings(pool.provider_settings)
    if settings.in_cluster == bool(pool.kubeconfig_sealed):
        message = "conflicts with provider_settings.in_cluster" if settings.in_cluster else "is required"
        allowed = "a kubeconfig, or provider_settings.in_cluster to use Berth's own service account"
        raise Invalid([Problem("kubeconfig", message, "", allowed)])


def connects_through_cluster(pool: NodePool) -> bool:
    """Return whether Berth connects to the pool's pods through its cluster's API server."""
    return pool.provider == KUBERNETES and pool.provider_settings.get("ports") == THROUGH_API_SERVER


class KubernetesAccess:
    """Connections to the clusters of all Kubernetes pools."""

    def __init__(self, clusters: Clusters) -> None:
        self._clusters = clusters

    @reconnect_after_failure
    def access_by_pool(self) -> Mapping[str, PoolAccess | UnusableCluster]:
        """Return each pool's cluster, or why it cannot be used, keyed by pool name.

        Close clusters that no pool uses any longer.
        """
        rows = NodePool.objects.filter(provider=KUBERNETES).order_by("name").values_list(*COLUMNS)
        pools = {name: self._open_access(json.dumps(settings), sealed) for name, settings, sealed in rows}
        self._clusters.close_unused_clusters(
            [access.cluster for access in pools.values() if isinstance(access, PoolAccess)]
        )
        return pools

    def access_for_pool(self, pool: NodePool) -> PoolAccess:
        """Return the pool's cluster. Raises ProviderError if it cannot be used."""
        access = self._open_access(json.dumps(pool.provider_settings), pool.kubeconfig_sealed)
        if isinstance(access, UnusableCluster):
            raise ProviderError(ProviderErrorKind.CREDENTIALS, access.reason)
        return access

    def nodes_changed_at(self, pool: NodePool) -> datetime | None:
        """Return when the cluster's nodes last changed, or None if no change has been noticed."""
        access = self._open_access(json.dumps(pool.provider_settings), pool.kubeconfig_sealed)
        return access.cluster.mirror.nodes_changed_at if isinstance(access, PoolAccess) else None

    @contextmanager
    def open(self, pool: NodePool) -> Iterator[PoolAccess]:
        """Yield the cluster of a pool, which may be unsaved. Raises ProviderError."""
        try:
            settings, connection = _parse(json.dumps(pool.provider_settings), pool.kubeconfig_sealed)
        except UNUSABLE as error:
            raise ProviderError(ProviderErrorKind.CREDENTIALS, str(error)) from error
        with self._clusters.open_temporary(connection) as cluster:
            yield PoolAccess(cluster, settings)

    def _open_access(self, settings_json: str, sealed: str) -> PoolAccess | UnusableCluster:
        try:
            settings, connection = _parse(settings_json, sealed)
            return PoolAccess(self._clusters.get(connection), settings)
        except UNUSABLE as error:
            return UnusableCluster(str(error))


@lru_cache(maxsize=256)
def _parse(settings_json: str, sealed: str) -> tuple[KubernetesSettings, Connection]:
    settings = kubernetes_settings(json.loads(settings_json))
    connection = (
        in_cluster_connection() if settings.in_cluster else parse_kubeconfig(unseal(sealed), settings.context)
    )
    return settings, connection
