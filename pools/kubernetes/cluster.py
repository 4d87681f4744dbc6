"""A pool's access to its cluster: the API client, the mirror and the pool's settings."""

import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from berth.core.clock import SystemClock
from pools.kubernetes.api_server.api import Api, ApiError
from pools.kubernetes.api_server.credentials import Connection
from pools.kubernetes.manifests import namespace_manifest
from pools.kubernetes.mirror import Mirror
from pools.kubernetes.nodes import INSTALLATION_LABEL
from pools.kubernetes.settings import KubernetesSettings
from pools.kubernetes.worker import PATIENCE, Worker
from pools.runtimes.base import RuntimeFailure

SYSTEM_NOW = SystemClock().now


class ForeignNamespace(Exception):
    """Raised if a namespace exists but does not belong to this installation."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """Access to one cluster. Pools with the same credentials share one object."""

    api: Api
    mirror: Mirror
    installation: str
    worker: Worker

    def close(self) -> None:
        """Stop the mirror, and close the connections when running calls have ended."""
        self.mirror.close()
        self.worker.close()
        self.api.close()


@dataclass(frozen=True, slots=True)
class PoolAccess:
    cluster: Cluster
    settings: KubernetesSettings


@dataclass(frozen=True, slots=True)
class UnusableCluster:
    """Reason why a pool's cluster cannot be used, for example missing credentials."""

    reason: str


class Clusters:
    """Collection of clusters, keyed by connection. Each is created on first use and kept while a pool
    uses it.
    """

    def __init__(
        self, installation: Callable[[], str], patience: float = PATIENCE,
        now: Callable[[], datetime] = SYSTEM_NOW,
    ) -> None:  # fmt: skip
        """Create an empty collection. Callers wait up to `patience` seconds for a cluster to respond."""
        self._installation, self._patience, self._now = installation, patience, now
        self._on_change: Callable[[], None] = lambda: None
        self._on_deleted: Callable[[Mapping[str, Any]], None] = lambda pod: None
        self._lock = threading.Lock()
        self._clusters: dict[Connection, Cluster] = {}

    def set_callbacks(
        self, on_change: Callable[[], None], on_deleted: Callable[[Mapping[str, Any]], None]
    ) -> None:
        """Set the callbacks for the mirrors of clusters that are created after this call."""
        self._on_change, self._on_deleted = on_change, on_deleted

    def get(self, connection: Connection) -> Cluster:
        with self._lock:
            if connection not in self._clusters:
                self._clusters[connection] = self._connect(connection)
            return self._clusters[connection]

    @contextmanager
    def open_temporary(self, connection: Connection) -> Iterator[Cluster]:
        """Yield a temporary cluster object that no pool shares."""
        cluster = self._connect(connection)
        try:
            yield cluster
        finally:
            cluster.close()

    def _connect(self, connection: Connection) -> Cluster:
        api, installation = Api(connection), self._installation()
        mirror = Mirror(api, installation, self._on_change, self._on_deleted, self._now)
        return Cluster(api, mirror, installation, Worker(api.server, self._patience, self._on_change))

    def close_unused_clusters(self, used: Collection[Cluster]) -> None:
        """Close the connections to all clusters that are not in `used`."""
        in_use = {id(cluster) for cluster in used}
        with self._lock:
            unused = [key for key, cluster in self._clusters.items() if id(cluster) not in in_use]
            closed = [self._clusters.pop(key) for key in unused]
        for cluster in closed:
            cluster.close()

    def close(self) -> None:
        self.close_unused_clusters(())


def ensure_namespace(cluster: Cluster, name: str, project: str) -> None:
    """Create a project's namespace if it does not exist.

    Raises ForeignNamespace, ApiError or Unreachable.
    """
    try:
        namespace = cluster.api.get(f"/api/v1/namespaces/{name}")
    except ApiError as error:
        if error.status != 404:
            raise
        try:
            manifest = namespace_manifest(name, cluster.installation, project)
            namespace = cluster.api.create("/api/v1/namespaces", manifest)
        except ApiError as conflict:
            if conflict.status != 409:
                raise
            namespace = cluster.api.get(f"/api/v1/namespaces/{name}")
    metadata = namespace["metadata"]
    if (metadata.get("labels") or {}).get(INSTALLATION_LABEL) != cluster.installation:
        raise ForeignNamespace(
            f"namespace {name} already exists, but does not belong to this installation. "
            f"Delete the namespace, or label it {INSTALLATION_LABEL}={cluster.installation}"
        )


def check_access(pool: str, access: PoolAccess | UnusableCluster | None) -> PoolAccess:
    """Return `access`, or raise RuntimeFailure if it is unusable or the pool is not on Kubernetes."""
    if not isinstance(access, PoolAccess):
        reason = "it is not a pool on Kubernetes" if access is None else access.reason
        raise RuntimeFailure(f"the cluster of pool {pool} cannot be used: {reason}")
    return access
