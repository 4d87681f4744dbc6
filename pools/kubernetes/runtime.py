"""Kubernetes runtime: each pod is a Kubernetes pod on exactly its assigned node."""

import logging
import os
import random
import socket
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any, TypeVar

from pools.kubernetes.api_server.api import Api
from pools.kubernetes.channels.loop import CHANNELS
from pools.kubernetes.cluster import PoolAccess, UnusableCluster, check_access
from pools.kubernetes.files.collection import read_source
from pools.kubernetes.files.store import CopiedFilesMixin, CopyLimits, FileCopies
from pools.kubernetes.logs.copies import LogCopies
from pools.kubernetes.logs.reading import LogReadingMixin
from pools.kubernetes.manifests import namespace_name
from pools.kubernetes.pod_locations import api_path, namespace_key, pool_name
from pools.kubernetes.pods import VANISHED, PodClient, translate_failures
from pools.kubernetes.quotas import read_quotas
from pools.kubernetes.reports import (
    awaits_code,
    command_report,
    has_files_to_copy,
    read_report,
    unschedulable_message,
)
from pools.kubernetes.worker import CallStillRunning
from pools.runtimes.base import (
    ChannelRejected,
    ClusterQuotas,
    Measurements,
    PodCause,
    PodReport,
    PodSpec,
    PodState,
    RuntimeFailure,
    StopNotice,
)
from pools.runtimes.enclosure.levels import Isolation, IsolationLevel
from pools.runtimes.ledger import Ledger, LedgerEntry
from pools.runtimes.pod_dir import validate_name
from pools.runtimes.rendezvous import FIRST_PORT, LAST_PORT

log = logging.getLogger(__name__)
T = TypeVar("T")
START, FORGET = "start", "forget"
SHARED_SECONDS = 1.0  # period during which pod calls reuse the loaded cluster access
UNSCHEDULABLE_SECONDS = 30  # a pod that Kubernetes cannot place for this long counts as lost
ENDED = PodReport(PodState.EXITED)
# Kubernetes pods always run in containers, and the cluster enforces their limits.
ISOLATION = Isolation(
    IsolationLevel.NAMESPACES, limits=("memory", "cpu"), images="kubernetes", seccomp=True, whole_devices=True
)


@dataclass(frozen=True, slots=True)
class _CachedReport:
    """Cached report of a running pod, valid until the mirror replaces the pod object."""

    pool: str
    pod: Mapping[str, Any]
    report: PodReport


@dataclass(frozen=True, slots=True)
class _CachedAccess:
    """Cached access to all pools' clusters, valid until the monotonic time `until`."""

    pools: Mapping[str, PoolAccess | UnusableCluster]
    until: float


class KubernetesRuntime(CopiedFilesMixin, LogReadingMixin):
    """Runtime of all Kubernetes pools. `pools` returns the access to each pool's cluster.

    Records, logs and copied files of finished pods are under `root`. All other state is in the clusters.
    """

    starts_in_background = True

    def __init__(
        self, root: Path, pools: Callable[[], Mapping[str, PoolAccess | UnusableCluster]],
        limits: Callable[[], CopyLimits] = CopyLimits,
    ) -> None:  # fmt: skip
        self.ledger = Ledger(root, syncs_starts=False)
        self._copies = LogCopies(root / "copies")
        self._files = FileCopies(root / "files", limits)
        self._pods = PodClient(self.ledger, self._copies, self._files, self.notify)
        self._pools = pools
        self._shared = _CachedAccess({}, 0.0)
        self._running: dict[str, _CachedReport] = {}
        ports = list(range(FIRST_PORT, LAST_PORT))
        random.shuffle(ports)
        self._ports = cycle(ports)
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def start(self, spec: PodSpec) -> None:
        if not self.ledger.has_ended(spec.pod_id):
            access, call = self._prepare_start_call(spec)
            self._run_in_worker(spec.pod_id, access, START, call)

    def begin_start(self, spec: PodSpec) -> None:
        """Queue a pod's start. If the start fails, a later call to `start` raises the error."""
        with suppress(RuntimeFailure, OSError, ValueError):
            if not self.ledger.has_ended(spec.pod_id):
                access, call = self._prepare_start_call(spec)
                access.cluster.worker.begin(spec.pod_id, START, call)

    def _prepare_start_call(self, spec: PodSpec) -> tuple[PoolAccess, Callable[[], None]]:
        """Record the pod, and return the call that creates it."""
        validate_name(spec.workspace)
        access = check_access(spec.pool, self._cached_pool_access().get(spec.pool))
        namespace = namespace_name(access.cluster.installation, spec.project)
        self.ledger.record_placement(
            spec.pod_id, namespace_key(spec.pool, namespace), spec.workspace, received=False
        )
        return access, partial(self._pods.start, spec, access, namespace)

    def _cached_pool_access(self) -> Mapping[str, PoolAccess | UnusableCluster]:
        now = time.monotonic()
        if now >= self._shared.until:
            self._shared = _CachedAccess(self._pools(), now + SHARED_SECONDS)
        return self._shared.pools

    def stop(self, pod_id: str, grace_seconds: int, notice: StopNotice | None = None) -> None:
        del notice  # pods with a preemption signal are never placed on Kubernetes
        if self.ledger.log_path(pod_id).exists():
            return
        entry = self._find_entry(pod_id)
        if entry is None:
            self.ledger.end_unstarted_pod(pod_id)
            self.notify()
            return
        if entry.ended is None:
            access, path = self._access_for_entry(entry), api_path(entry, pod_id)
            call = partial(self._pods.stop, pod_id, access.cluster, path, grace_seconds)
            self._run_in_worker(pod_id, access, f"stop in {grace_seconds} s", call)

    def _run_in_worker(self, pod_id: str, access: PoolAccess, action: str, call: Callable[[], T]) -> T:
        """Run a call in the cluster's worker. Raises RuntimeFailure if it fails or takes too long."""
        cluster = access.cluster
        try:
            return cluster.worker.run(pod_id, action, call)
        except CallStillRunning:
            raise RuntimeFailure(f"{cluster.api.server} has not responded to this call yet") from None

    def get_reports(self, pod_ids: Collection[str]) -> dict[str, PodReport]:
        reports: dict[str, PodReport] = {}
        mirrored: dict[str, Mapping[str, Mapping[str, Any]]] = {}

        def find_pod(pool: str, pod_id: str) -> Mapping[str, Any] | None:
            if pool not in mirrored:
                mirrored[pool] = self._own_pods(pool)
            return mirrored[pool].get(pod_id)

        for pod_id in pod_ids:
            running = self._running.get(pod_id)
            if running is not None and find_pod(running.pool, pod_id) is running.pod:
                reports[pod_id] = running.report
                continue
            self._running.pop(pod_id, None)
            entry = self._find_entry(pod_id)
            if entry is None:
                reports[pod_id] = PodReport(PodState.UNKNOWN)
            elif entry.ended is not None:
                reports[pod_id] = entry.ended
            else:
                pod = find_pod(pool := pool_name(entry), pod_id)
                report = reports[pod_id] = self._current_report(pod_id, pod)
                if pod is not None and report.state is PodState.RUNNING and not has_files_to_copy(pod):
                    self._running[pod_id] = _CachedReport(pool, pod, report)
        return reports

    def _current_report(self, pod_id: str, pod: Mapping[str, Any] | None) -> PodReport:
        """Return the pod's report.

        If a call to the cluster fails, the report contains the error and leaves the pod's state unchanged.
        """
        try:
            return self._report(pod_id, pod)
        except RuntimeFailure as failure:
            log.warning("a call for pod %s failed: %s", pod_id, failure)
            return PodReport(PodState.STARTING, progress=str(failure))

    def _report(self, pod_id: str, pod: Mapping[str, Any] | None) -> PodReport:
        if pod is None:
            return self._missing_report(pod_id)
        self.ledger.record_possible_receipt(pod_id)
        report = read_report(pod)
        if report.state is PodState.STARTING:
            message, since = unschedulable_message(pod)
            if message and since and self._is_overdue(pod_id, since):
                text = f"the cluster's scheduler could not place the pod: {message}"
                return self._delete_pod(pod_id, replace(ENDED, cause=PodCause.LOST, message=text)) or report
            if awaits_code(pod) and (delivery := self._pods.code.ensure_started(pod_id)) is not None:
                if delivery.failure:
                    end = replace(ENDED, cause=PodCause.START_FAILED, message=delivery.failure)
                    return self._delete_pod(pod_id, end) or report
                return replace(report, progress=delivery.progress)
        if report.state is not PodState.EXITED and has_files_to_copy(pod):
            return self._copy_files(pod_id, pod) or report
        return self._pods.record_final_report(pod_id, report) if report.state is PodState.EXITED else report

    def _copy_files(self, pod_id: str, pod: Mapping[str, Any]) -> PodReport | None:
        """Start or continue copying the pod's files.

        If the container still runs after the copy, delete the pod and return its final report. Otherwise,
        return None.
        """
        access, path = self._access_and_path(pod_id)
        must_end = self._pods.files.advance(pod_id, read_source(access.cluster.api, path, pod))
        end = command_report(pod) if must_end else None
        return self._delete_pod(pod_id, end) if end is not None else None

    def _is_overdue(self, pod_id: str, since: datetime) -> bool:
        """Return whether the pod has been unschedulable for too long, by the cluster's clock."""
        now = datetime.now(UTC) + self._access_and_path(pod_id)[0].cluster.api.clock_skew
        return now - since > timedelta(seconds=UNSCHEDULABLE_SECONDS)

    def _missing_report(self, pod_id: str) -> PodReport:
        """Return the report for a pod that is missing from the mirror.

        The API server is queried, because the mirror may be out of date.
        """
        entry = self.ledger.find(pod_id)
        if entry is not None and entry.ended is not None:
            return entry.ended
        if entry is None or not entry.received:
            return PodReport(PodState.UNKNOWN)  # the next call to `start` resumes the pod
        access, path = self._access_for_entry(entry), api_path(entry, pod_id)
        try:
            call = partial(self._pods.find_pod, access.cluster, path)
            pod = access.cluster.worker.run(pod_id, "check", call)
        except CallStillRunning:
            return PodReport(PodState.STARTING)  # the STARTING report leaves the pod's state unchanged
        if pod is not None:
            return self._report(pod_id, pod)
        return self._pods.record_final_report(pod_id, VANISHED)

    def _delete_pod(self, pod_id: str, report: PodReport) -> PodReport | None:
        """Delete a pod and record the report as its end. Return None while the deletion is in progress."""
        access, path = self._access_and_path(pod_id)
        call = partial(self._pods.delete_unusable_pod, pod_id, access.cluster, path, report)
        try:
            return access.cluster.worker.run(pod_id, "give up", call)
        except CallStillRunning:
            return None

    def record_deletion(self, pod: Mapping[str, Any]) -> None:
        """Record a deleted pod's end, derived from its last state."""
        self._pods.record_deletion(pod)

    def list_pods(self) -> tuple[str, ...]:
        recorded = set(self.ledger.pod_ids())
        for pool in self._pools():
            with suppress(RuntimeFailure):
                recorded |= self._adopt_pods(pool)
        return tuple(sorted(recorded))

    def _adopt_pods(self, pool: str) -> set[str]:
        """Add the pool's pods that are missing from the ledger. Return their IDs."""
        adopted = set()
        for pod_id, pod in self._own_pods(pool).items():
            if self.ledger.find(pod_id) is None and not self.ledger.log_path(pod_id).exists():
                self.ledger.record_placement(
                    pod_id, namespace_key(pool, pod["metadata"]["namespace"]), "adopted", received=True
                )
                adopted.add(pod_id)
        return adopted

    def forget(self, pod_id: str) -> None:
        entry = self._find_entry(pod_id)
        if entry is None or self.get_reports([pod_id])[pod_id].state is not PodState.EXITED:
            return
        if entry.received:
            self._run_in_worker(pod_id, *self._forget_call(pod_id, entry))
        else:
            self._pods.drop_record(pod_id)

    def forget_in_background(self, pod_id: str) -> None:
        """Queue the calls that forget a pod. If one fails, a later call to `forget` raises the error."""
        with suppress(RuntimeFailure, OSError, ValueError):
            entry = self.ledger.find(pod_id)
            if entry is not None and entry.ended is not None and entry.received:
                access, action, call = self._forget_call(pod_id, entry)
                access.cluster.worker.begin(pod_id, action, call)

    def _forget_call(self, pod_id: str, entry: LedgerEntry) -> tuple[PoolAccess, str, Callable[[], None]]:
        access = check_access(pool_name(entry), self._cached_pool_access().get(pool_name(entry)))
        path = api_path(entry, pod_id)
        return access, FORGET, partial(self._pods.forget, pod_id, access.cluster, path)

    def drop_log(self, pod_id: str) -> None:
        if self.ledger.find(pod_id) is None:
            self.ledger.drop_log(pod_id)
            self._copies.delete_copy(pod_id)

    def drop_workspace(self, workspace: str) -> None:
        """Do nothing, because Berth cannot access workspaces in clusters."""
        validate_name(workspace)

    def _update_log(self, pod_id: str, entry: LedgerEntry, *, in_worker: bool) -> None:
        access = self._access_for_entry(entry)
        update = partial(self._pods.update_log, pod_id, access.cluster, api_path(entry, pod_id))
        if in_worker:
            self._run_in_worker(pod_id, access, "log", update)
        else:
            update()

    def open_channel(self, pod_id: str) -> socket.socket:
        """Open a channel. If the cluster later rejects the request, the channel's status says why."""
        return CHANNELS.open(*self._running_pod(pod_id))

    def open_port(self, pod_id: str, port: int) -> socket.socket:
        """Connect to the pod's port through the API server.

        If no process listens on the port, the connection ends. Raises ChannelRejected or RuntimeFailure.
        """
        return CHANNELS.open_port(*self._running_pod(pod_id), port)

    def _running_pod(self, pod_id: str) -> tuple[Api, str]:
        """Return the cluster's API client and the pod's API path. Raises ChannelRejected."""
        entry = self.ledger.find(pod_id)
        if entry is None or entry.ended is not None or not entry.received:
            raise ChannelRejected("the pod is not running")
        return self._access_for_entry(entry).cluster.api, api_path(entry, pod_id)

    def checkpointed_at(self, workspace: str) -> datetime | None:
        """Return None, because Berth cannot access workspaces in clusters."""
        validate_name(workspace)
        return None

    def measure(self, pod_ids: Collection[str], instance_ids: Collection[str]) -> Measurements:
        """Return no measurements, because Berth does not read the cluster's metrics."""
        return Measurements({}, {})

    def get_isolation(self, instance_ids: Collection[str]) -> Mapping[str, Isolation]:
        return dict.fromkeys(instance_ids, ISOLATION)

    def get_cluster_quotas(self, pool: str) -> ClusterQuotas:
        access = self._access_for_pool(pool)
        mirror, patience = access.cluster.mirror, access.cluster.worker.patience
        with translate_failures(pool):
            quotas = mirror.quotas(patience)
            own = mirror.own_pods(pool, patience).values() if quotas else ()
        bounds = read_quotas(quotas, own, access.settings.gpu_resource)
        return ClusterQuotas(bounds, mirror.quota_obstacle)

    def rendezvous(self) -> tuple[str, int]:
        """Return an empty address and an arbitrary port. The port is free, because each pod has its own
        address.
        """
        return "", next(self._ports)

    def wake_fds(self) -> tuple[int, ...]:
        return (self._wake,)

    def clear_wakeups(self) -> None:
        with suppress(BlockingIOError):
            os.eventfd_read(self._wake)

    def notify(self) -> None:
        os.eventfd_write(self._wake, 1)

    def _access_for_pool(self, pool: str) -> PoolAccess:
        return check_access(pool, self._pools().get(pool))

    def _access_and_path(self, pod_id: str) -> tuple[PoolAccess, str]:
        """Return the cluster's access and the pod's API path. The pod must be in the ledger."""
        entry = self.ledger.find(pod_id)
        assert entry is not None
        return self._access_for_entry(entry), api_path(entry, pod_id)

    def _access_for_entry(self, entry: LedgerEntry) -> PoolAccess:
        return self._access_for_pool(pool_name(entry))

    def _own_pods(self, pool: str) -> Mapping[str, Mapping[str, Any]]:
        cluster = self._access_for_pool(pool).cluster
        with translate_failures(pool):
            return cluster.mirror.own_pods(pool, cluster.worker.patience)

    def _find_entry(self, pod_id: str) -> LedgerEntry | None:
        """Return the pod's record, or None. If necessary, look for the pod in the clusters."""
        entry = self.ledger.find(pod_id)
        if entry is None and not self.ledger.log_path(pod_id).exists():
            for pool in self._pools():
                with suppress(RuntimeFailure):
                    self._adopt_pods(pool)
            entry = self.ledger.find(pod_id)
        return entry
