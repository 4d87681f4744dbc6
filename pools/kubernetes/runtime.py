"""Runtime that runs each pod as a Kubernetes pod, pinned to its node."""

import logging
import os
import random
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any

from pools.kubernetes.api import ApiError, Unreachable
from pools.kubernetes.cluster import Cluster, ForeignNamespace, PoolAccess, Unusable, ensure_namespace
from pools.kubernetes.log_stream import LogFollowers, fetch_log
from pools.kubernetes.logs import LogCopies
from pools.kubernetes.manifests import (
    POOL_LABEL,
    namespace_name,
    pod_manifest,
    secret_manifests,
)
from pools.kubernetes.refusals import find_refusal, permanent_refusal
from pools.kubernetes.reports import read_report, unschedulable_message, vanished_report
from pools.runtimes import local_log
from pools.runtimes.base import (
    LogChunk,
    Measurements,
    PodCause,
    PodOrder,
    PodReport,
    PodState,
    RuntimeFailure,
)
from pools.runtimes.enclosure.levels import Isolation, Level
from pools.runtimes.ledger import Entry, Ledger
from pools.runtimes.local import validate_name
from pools.runtimes.rendezvous import FIRST_PORT, LAST_PORT

log = logging.getLogger(__name__)

UNSCHEDULABLE_SECONDS = 30  # a pod that cannot be placed for this long is lost
LOG_PATIENCE = timedelta(minutes=10)
VANISHED = "the pod no longer exists in the cluster"
# Kubernetes pods always run in containers, and the cluster enforces their limits.
ISOLATION = Isolation(
    Level.NAMESPACES, limits=("memory", "cpu"), images="kubernetes", seccomp=True, whole_devices=True
)


class KubernetesRuntime:
    """Runtime of all Kubernetes pools.

    `pools` returns the access to each pool's cluster. Records and logs of ended pods are under `root`. All
    other state is in the clusters, so a new process finds all pods again.
    """

    def __init__(self, root: Path, pools: Callable[[], Mapping[str, PoolAccess | Unusable]]) -> None:
        self.ledger = Ledger(root)
        self._copies = LogCopies(root / "copies")
        self._followers = LogFollowers(self._copies)
        self._pools = pools
        self._namespaces: set[tuple[str, str]] = set()
        ports = list(range(FIRST_PORT, LAST_PORT))
        random.shuffle(ports)
        self._ports = cycle(ports)
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    # --- starting and stopping

    def start(self, order: PodOrder) -> None:
        entry = self.ledger.find(order.pod_id)
        if self.ledger.log_path(order.pod_id).exists() or (entry is not None and entry.ended is not None):
            return
        validate_name(order.workspace)
        access = self._access(order.pool)
        cluster = access.cluster
        namespace = namespace_name(cluster.installation, order.project)
        self.ledger.place(order.pod_id, _place(order.pool, namespace), order.workspace, received=False)
        if refusal := find_refusal(order):
            self._fail(order.pod_id, refusal)
            return
        with _failures(order.pool):
            self._ensure_namespace(cluster, namespace, order.project)
            self._create(order, access, namespace)

    def _create(self, order: PodOrder, access: PoolAccess, namespace: str) -> None:
        cluster, path = access.cluster, f"/api/v1/namespaces/{namespace}/pods"
        node = order.instance_id.rpartition("/")[0]
        manifest = pod_manifest(order, namespace, node, cluster.installation, access.settings)
        try:
            pod = cluster.api.create(path, manifest)
        except ApiError as error:
            if error.status == 409 and error.reason == "AlreadyExists":
                pod = cluster.api.get(f"{path}/{order.pod_id}")
                if not cluster.mirror.is_own(pod):
                    raise RuntimeFailure(
                        f"{namespace} has a pod {order.pod_id} that Berth did not create"
                    ) from error
            elif error.status == 404:
                self._namespaces.discard((cluster.api.server, namespace))
                raise
            elif refusal := permanent_refusal(error):
                self._fail(order.pod_id, refusal)
                return
            else:
                raise
        cluster.mirror.note(pod)
        self.ledger.receive(order.pod_id)
        self.notify()
        for secret in secret_manifests(order, namespace, pod["metadata"]["uid"]):
            try:
                cluster.api.create(f"/api/v1/namespaces/{namespace}/secrets", secret)
            except ApiError as error:
                if error.status != 409:
                    raise

    def _fail(self, pod_id: str, message: str) -> None:
        """Record that the pod can never start."""
        report = PodReport(
            PodState.EXITED, ended_at=datetime.now(UTC), cause=PodCause.START_FAILED, message=message
        )
        self.ledger.end(pod_id, report)
        self.notify()

    def stop(self, pod_id: str, grace_seconds: int) -> None:
        if self.ledger.log_path(pod_id).exists():
            return
        entry = self._entry(pod_id)
        if entry is None:
            self.ledger.stop_before_start(pod_id)
            self.notify()
            return
        if entry.ended is not None:
            return
        access, path = self._access_of(entry), _path(entry, pod_id)
        with _failures(_pool(entry)):
            try:
                pod = access.cluster.api.get(path)
            except ApiError as error:
                if error.status != 404:
                    raise
                self.ledger.stop_before_start(pod_id)  # a pod that was created is reported as vanished
                self.notify()
                return
            self._stop(pod, pod_id, access.cluster, path, max(grace_seconds, 0))

    def _stop(self, pod: Mapping[str, Any], pod_id: str, cluster: Cluster, path: str, grace: int) -> None:
        """Delete an existing pod, with at most the grace period in its order.

        The node deletes the log with the container, so the log is followed until then.
        """
        if read_report(pod).state is PodState.EXITED:
            return
        metadata, spec = pod["metadata"], pod["spec"]
        if not spec.get("nodeName"):
            cluster.api.delete(path, 0)
            return
        seconds = min(max(grace, 1), int(spec.get("terminationGracePeriodSeconds") or 1))
        self._followers.follow(pod_id, cluster.api, f"{path}/log", seconds)
        if not metadata.get("deletionTimestamp") or seconds < metadata.get("deletionGracePeriodSeconds", 0):
            cluster.api.delete(path, seconds)

    # --- state

    def get_reports(self, pod_ids: Collection[str]) -> dict[str, PodReport]:
        reports: dict[str, PodReport] = {}
        mirrored: dict[str, Mapping[str, Mapping[str, Any]]] = {}
        for pod_id in pod_ids:
            entry = self._entry(pod_id)
            if entry is None:
                reports[pod_id] = PodReport(PodState.UNKNOWN)
            elif entry.ended is not None:
                reports[pod_id] = entry.ended
            else:
                pool = _pool(entry)
                if pool not in mirrored:
                    mirrored[pool] = self._own_pods(pool)
                reports[pod_id] = self._report(pod_id, mirrored[pool].get(pod_id))
        return reports

    def _report(self, pod_id: str, pod: Mapping[str, Any] | None) -> PodReport:
        if pod is None:
            return self._missing_report(pod_id)
        self.ledger.receive(pod_id)
        report = read_report(pod)
        if report.state is PodState.STARTING:
            message, since = unschedulable_message(pod)
            if message and since and datetime.now(UTC) - since > timedelta(seconds=UNSCHEDULABLE_SECONDS):
                return self._give_up(pod_id, message)
        return self._end(pod_id, report) if report.state is PodState.EXITED else report

    def _missing_report(self, pod_id: str) -> PodReport:
        """Return the report of a pod that is missing from the mirror.

        The watch may meanwhile have recorded the pod's end, or may lag behind, so this asks the API server.
        """
        entry = self.ledger.find(pod_id)
        if entry is not None and entry.ended is not None:
            return entry.ended
        if entry is None or not entry.received:
            return PodReport(PodState.UNKNOWN)  # `start` resumes the pod
        if (pod := self._find_pod(pod_id, entry)) is not None:
            return self._report(pod_id, pod)
        return self._end(pod_id, PodReport(PodState.EXITED, cause=PodCause.STOPPED, message=VANISHED))

    def _find_pod(self, pod_id: str, entry: Entry) -> Mapping[str, Any] | None:
        """Return the pod's object, or None if the API server has no such pod of this installation."""
        cluster = self._access_of(entry).cluster
        with _failures(_pool(entry)):
            try:
                pod = cluster.api.get(_path(entry, pod_id))
            except ApiError as error:
                if error.status != 404:
                    raise
                return None
        return pod if cluster.mirror.is_own(pod) else None

    def _give_up(self, pod_id: str, message: str) -> PodReport:
        """Give up a pod that does not fit on its node because foreign pods were placed there first."""
        entry = self.ledger.find(pod_id)
        assert entry is not None
        with _failures(_pool(entry)):
            self._access_of(entry).cluster.api.delete(_path(entry, pod_id), 0)
        text = f"the cluster's scheduler could not place the pod: {message}"
        return self._end(pod_id, PodReport(PodState.EXITED, cause=PodCause.LOST, message=text))

    def _end(self, pod_id: str, report: PodReport) -> PodReport:
        if report.ended_at is None:
            report = replace(report, ended_at=datetime.now(UTC))
        return self.ledger.end(pod_id, report)

    def record_deletion(self, pod: Mapping[str, Any]) -> None:
        """Record the end of a pod whose object was deleted, from its last state."""
        pod_id = pod["metadata"]["name"]
        entry = self.ledger.find(pod_id)
        if entry is not None and entry.ended is None:
            self._end(pod_id, vanished_report(pod))

    # --- records, logs and workspaces

    def list_pods(self) -> tuple[str, ...]:
        recorded = set(self.ledger.ids())
        for pool in self._pools():
            with suppress(RuntimeFailure):
                recorded |= self._adopt(pool)
        return tuple(sorted(recorded))

    def _adopt(self, pool: str) -> set[str]:
        """Add this pool's pods that are missing from the ledger. Return their IDs."""
        adopted = set()
        for pod_id, pod in self._own_pods(pool).items():
            if self.ledger.find(pod_id) is None and not self.ledger.log_path(pod_id).exists():
                place = _place(pool, pod["metadata"]["namespace"])
                self.ledger.place(pod_id, place, "adopted", received=True)
                adopted.add(pod_id)
        return adopted

    def forget(self, pod_id: str) -> None:
        entry = self._entry(pod_id)
        if entry is None or self.get_reports([pod_id])[pod_id].state is not PodState.EXITED:
            return
        if entry.received:
            access, path = self._access_of(entry), _path(entry, pod_id)
            self._save_log(pod_id, access.cluster, path)
            with _failures(_pool(entry)):
                access.cluster.api.delete(path, 0)
        if not self.ledger.log_path(pod_id).exists():
            self._copies.take(pod_id, self.ledger.log_path(pod_id))
        self.ledger.forget(pod_id)

    def _save_log(self, pod_id: str, cluster: Cluster, path: str) -> None:
        """Copy the end of the log, unless its node has been unresponsive for a long time."""
        try:
            self._update_log(pod_id, cluster, path)
        except RuntimeFailure as failure:
            entry = self.ledger.find(pod_id)
            ended_at = entry.ended.ended_at if entry is not None and entry.ended is not None else None
            if ended_at is None or datetime.now(UTC) - ended_at < LOG_PATIENCE:
                raise
            log.warning("the end of the log of pod %s is lost: %s", pod_id, failure)

    def drop_log(self, pod_id: str) -> None:
        if self.ledger.find(pod_id) is None:
            self.ledger.drop_log(pod_id)
            self._copies.drop(pod_id)

    def drop_workspace(self, workspace: str) -> None:
        """Do nothing: Berth does not mount workspaces, and some are deleted with their pods."""
        validate_name(workspace)

    def read_log(self, pod_id: str, offset: int, limit: int) -> LogChunk:
        path, ended = self._log(pod_id)
        return local_log.read_log(path, offset, limit, ended)

    def tail_log(self, pod_id: str, lines: int) -> LogChunk:
        path, ended = self._log(pod_id)
        return local_log.tail_log(path, lines, ended)

    def _log(self, pod_id: str) -> tuple[Path, bool]:
        """Return the path of the up-to-date log, and whether the pod has ended."""
        final = self.ledger.log_path(pod_id)
        entry = None if final.exists() else self.ledger.find(pod_id)
        if entry is None or not entry.received:
            return final, True
        self._update_log(pod_id, self._access_of(entry).cluster, _path(entry, pod_id))
        return (final if final.exists() else self._copies.path(pod_id)), entry.ended is not None

    def _update_log(self, pod_id: str, cluster: Cluster, path: str) -> None:
        """Copy new output from the pod's log. Raises RuntimeFailure if the cluster does not respond."""
        with _failures(cluster.api.server):
            self._copies.update(pod_id, partial(fetch_log, cluster.api, f"{path}/log"))

    def checkpointed_at(self, workspace: str) -> datetime | None:
        """Return None, because Berth does not mount the workspaces of clusters."""
        validate_name(workspace)
        return None

    # --- nodes

    def measure(self, pod_ids: Collection[str], instance_ids: Collection[str]) -> Measurements:
        """Return nothing, because Berth does not read the cluster's metrics."""
        return Measurements({}, {})

    def get_isolation(self, instance_ids: Collection[str]) -> Mapping[str, Isolation]:
        return dict.fromkeys(instance_ids, ISOLATION)

    def rendezvous(self) -> tuple[str, int]:
        """Return a fixed port. Each pod has its own address, so the port is free."""
        return "", next(self._ports)

    def wake_fds(self) -> tuple[int, ...]:
        return (self._wake,)

    def drain_wakes(self) -> None:
        with suppress(BlockingIOError):
            os.eventfd_read(self._wake)

    def notify(self) -> None:
        """Wake the process that waits for pod changes."""
        os.eventfd_write(self._wake, 1)

    # --- pools

    def _access(self, pool: str) -> PoolAccess:
        access = self._pools().get(pool)
        if not isinstance(access, PoolAccess):
            reason = "it is not a pool on Kubernetes" if access is None else access.reason
            raise RuntimeFailure(f"the cluster of pool {pool} cannot be used: {reason}")
        return access

    def _access_of(self, entry: Entry) -> PoolAccess:
        return self._access(_pool(entry))

    def _own_pods(self, pool: str) -> dict[str, Mapping[str, Any]]:
        with _failures(pool):
            pods = self._access(pool).cluster.mirror.own_pods()
        return {name: pod for name, pod in pods.items() if pod["metadata"]["labels"].get(POOL_LABEL) == pool}

    def _entry(self, pod_id: str) -> Entry | None:
        """Return the pod's record. If it is missing, adopt the pods that the clusters run first."""
        entry = self.ledger.find(pod_id)
        if entry is None and not self.ledger.log_path(pod_id).exists():
            for pool in self._pools():
                with suppress(RuntimeFailure):
                    self._adopt(pool)
            entry = self.ledger.find(pod_id)
        return entry

    def _ensure_namespace(self, cluster: Cluster, namespace: str, project: str) -> None:
        key = cluster.api.server, namespace
        if key not in self._namespaces:
            ensure_namespace(cluster, namespace, project)
            self._namespaces.add(key)


@contextmanager
def _failures(place: str) -> Iterator[None]:
    try:
        yield
    except ApiError as error:
        raise RuntimeFailure(f"the cluster of {place} refused a call: {error.message}") from error
    except (Unreachable, ForeignNamespace) as error:
        raise RuntimeFailure(str(error)) from error


def _place(pool: str, namespace: str) -> str:
    return f"{pool}/{namespace}"


def _pool(entry: Entry) -> str:
    return entry.instance_id.partition("/")[0]


def _path(entry: Entry, pod_id: str) -> str:
    return f"/api/v1/namespaces/{entry.instance_id.partition('/')[2]}/pods/{pod_id}"
