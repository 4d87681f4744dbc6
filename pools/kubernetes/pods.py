"""API calls for individual pods.

The calls can take a long time, so they run in a worker's threads, which have no database connection.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from pools.kubernetes.api_server.api import ApiError, Unreachable
from pools.kubernetes.cluster import Cluster, ForeignNamespace, PoolAccess, ensure_namespace
from pools.kubernetes.code.delivery import CodeDeliveries
from pools.kubernetes.files.collection import FileCollector
from pools.kubernetes.files.container import CONTAINER as FILES_CONTAINER
from pools.kubernetes.files.container import COPY_SECONDS
from pools.kubernetes.files.store import FileCopies
from pools.kubernetes.logs.copies import LogCopies
from pools.kubernetes.logs.stream import LogFollowers, fetch_log
from pools.kubernetes.manifests import pod_manifest, secret_manifests
from pools.kubernetes.rejections import find_rejection, permanent_rejection, temporary_rejection
from pools.kubernetes.reports import command_report, deleted_pod_report, read_report
from pools.runtimes.base import PodCause, PodReport, PodSpec, PodState, RuntimeFailure, StartRejected
from pools.runtimes.ledger import Ledger

log = logging.getLogger(__name__)

LOG_PATIENCE = timedelta(minutes=10)
VANISHED = PodReport(
    PodState.EXITED, cause=PodCause.EVICTED, message="the pod no longer exists in the cluster"
)
STOPPED = PodReport(PodState.EXITED, cause=PodCause.STOPPED)


class PodClient:
    """Client that starts, stops, checks and deletes pods in any cluster.

    `notify` is called when a pod's report changes.
    """

    def __init__(
        self, ledger: Ledger, copies: LogCopies, files: FileCopies, notify: Callable[[], None]
    ) -> None:
        self._ledger, self._copies, self._files, self._notify = ledger, copies, files, notify
        self._followers = LogFollowers(copies)
        self.code, self.files = CodeDeliveries(notify), FileCollector(files, notify)
        self._namespaces: set[tuple[str, str]] = set()
        self._created: set[str] = set()  # pods whose objects and secrets have been created in a cluster

    def start(self, pod_spec: PodSpec, access: PoolAccess, namespace: str) -> None:
        """Create the pod and its secrets, unless the pod has been stopped in the meantime."""
        entry = self._ledger.find(pod_spec.pod_id)
        if entry is None or entry.ended is not None:
            return
        if pod_spec.code_url:
            self.code.expect_pod(
                pod_spec, access.cluster.api, f"/api/v1/namespaces/{namespace}/pods/{pod_spec.pod_id}"
            )
        if pod_spec.pod_id in self._created:
            return
        if rejection := find_rejection(pod_spec):
            self._record_failed_start(pod_spec.pod_id, rejection)
            return
        self._ledger.sync(pod_spec.pod_id)  # every pod in the cluster must have a record
        with translate_failures(pod_spec.pool):
            try:
                self._ensure_namespace(access.cluster, namespace, pod_spec.project)
            except (ApiError, ForeignNamespace) as error:
                if isinstance(error, ForeignNamespace) or error.status == 403:
                    raise StartRejected(f"the cluster rejects the project's namespace: {error}") from error
                raise
            self._create(pod_spec, access, namespace)

    def _create(self, pod_spec: PodSpec, access: PoolAccess, namespace: str) -> None:
        cluster, path = access.cluster, f"/api/v1/namespaces/{namespace}/pods"
        node = pod_spec.instance_id.rpartition("/")[0]
        manifest = pod_manifest(pod_spec, namespace, node, cluster.installation, access.settings)
        try:
            pod = cluster.api.create(path, manifest)
        except ApiError as error:
            if error.status == 409 and error.reason == "AlreadyExists":
                pod = cluster.api.get(f"{path}/{pod_spec.pod_id}")
                if not cluster.mirror.is_own_pod(pod):
                    raise RuntimeFailure(
                        f"namespace {namespace} contains the pod {pod_spec.pod_id}, which Berth did not "
                        "create. Delete the pod"
                    ) from error
            elif error.status == 404:
                self._namespaces.discard((cluster.api.server, namespace))
                raise
            elif rejection := permanent_rejection(error):
                self._record_failed_start(pod_spec.pod_id, rejection)
                return
            elif rejection := temporary_rejection(error, namespace):
                raise StartRejected(rejection) from error
            else:
                raise
        cluster.mirror.add_created_pod(pod)
        self._ledger.record_possible_receipt(pod_spec.pod_id)
        self._notify()
        for secret in secret_manifests(pod_spec, namespace, pod["metadata"]["uid"]):
            try:
                cluster.api.create(f"/api/v1/namespaces/{namespace}/secrets", secret)
            except ApiError as error:
                if error.status != 409:
                    raise
        self._created.add(pod_spec.pod_id)

    def _record_failed_start(self, pod_id: str, message: str) -> None:
        self._ledger.record_final_report(
            pod_id,
            PodReport(
                PodState.EXITED, ended_at=datetime.now(UTC), cause=PodCause.START_FAILED, message=message
            ),
        )
        self._notify()

    def stop(self, pod_id: str, cluster: Cluster, path: str, grace_seconds: int) -> None:
        with translate_failures(cluster.api.server):
            try:
                pod = cluster.api.get(path)
            except ApiError as error:
                if error.status != 404:
                    raise
                # Pods that the cluster has received are reported as deleted, and are not changed here.
                self._ledger.end_unstarted_pod(pod_id)
                self._notify()
                return
            self._delete_existing_pod(pod, pod_id, cluster, path, max(grace_seconds, 0))

    def _delete_existing_pod(
        self, pod: Mapping[str, Any], pod_id: str, cluster: Cluster, path: str, grace: int
    ) -> None:
        """Delete an existing pod, with a grace period of at most the pod's own.

        The log is copied until the node deletes it.
        """
        if read_report(pod).state is PodState.EXITED or (grace and command_report(pod)):
            return
        metadata, spec = pod["metadata"], pod["spec"]
        if not metadata.get("deletionTimestamp"):
            # A machine crash may lose this record, but the pod's row also records that Berth is stopping it.
            self._ledger.save_expected_report(pod_id, STOPPED, durable=False)
        if not spec.get("nodeName"):
            cluster.api.delete(path, 0)
            return
        seconds = _grace_period(spec, grace)
        self._followers.follow(pod_id, cluster.api, f"{path}/log", seconds)
        if not metadata.get("deletionTimestamp") or seconds < metadata.get("deletionGracePeriodSeconds", 0):
            cluster.api.delete(path, seconds)

    def find_pod(self, cluster: Cluster, path: str) -> Mapping[str, Any] | None:
        """Return the pod object, or None if this installation has no such pod in the cluster."""
        with translate_failures(cluster.api.server):
            try:
                pod = cluster.api.get(path)
            except ApiError as error:
                if error.status != 404:
                    raise
                return None
        return pod if cluster.mirror.is_own_pod(pod) else None

    def delete_unusable_pod(self, pod_id: str, cluster: Cluster, path: str, report: PodReport) -> PodReport:
        """Delete a pod that cannot start or does not exit, with `report` as its final report.

        The report is stored before the pod is deleted, because Berth may crash in between.
        """
        self._ledger.save_expected_report(pod_id, report, durable=True)
        with translate_failures(cluster.api.server):
            cluster.api.delete(path, 0)
        return self.record_final_report(pod_id, report)

    def record_deletion(self, pod: Mapping[str, Any]) -> None:
        """Record a deleted pod's final report, derived from its last state."""
        pod_id = pod["metadata"]["name"]
        entry = self._ledger.find(pod_id)
        if entry is not None and entry.ended is None:
            self.record_final_report(pod_id, deleted_pod_report(pod))

    def record_final_report(self, pod_id: str, report: PodReport) -> PodReport:
        """Record the pod's final report, and return the effective one.

        A report that Berth stored before deleting the pod takes precedence. The recorded time is never in the
        future.
        """
        now = datetime.now(UTC)
        if (
            report.cause is PodCause.EVICTED
            and (expected := self._expected_report(pod_id, report)) is not None
        ):
            # If the pod never ran, take only the cause and message from the expected report.
            has_run = expected.started_at is not None
            report = expected if has_run else replace(report, cause=expected.cause, message=expected.message)
        self._created.discard(pod_id)
        self.code.forget(pod_id)
        self.files.forget(pod_id)
        return self._ledger.record_final_report(
            pod_id, replace(report, ended_at=min(report.ended_at or now, now))
        )

    def _expected_report(self, pod_id: str, report: PodReport) -> PodReport | None:
        """Return the report that Berth stored before it deleted the pod, or None if there is none.

        A report of a failed start is ignored if the pod has started after all.
        """
        entry = self._ledger.find(pod_id)
        expected = entry.planned if entry is not None else None
        if expected is None or expected.cause is PodCause.STOPPED or expected.started_at is not None:
            return expected
        return expected if report.started_at is None else None

    def forget(self, pod_id: str, cluster: Cluster, path: str) -> None:
        """Copy the end of the pod's log, and delete the pod object and its record."""
        if self._ledger.find(pod_id) is None:
            return
        self._save_log(pod_id, cluster, path)
        with translate_failures(cluster.api.server):
            cluster.api.delete(path, 0)
        self.drop_record(pod_id)

    def drop_record(self, pod_id: str) -> None:
        """Move the copied log to its final path, and delete the pod's record."""
        self._created.discard(pod_id)
        self.code.forget(pod_id)
        self.files.forget(pod_id)
        if not self._ledger.log_path(pod_id).exists():
            self._copies.move_to(pod_id, self._ledger.log_path(pod_id))
        self._files.delete_copy(pod_id)
        self._ledger.forget(pod_id)

    def _save_log(self, pod_id: str, cluster: Cluster, path: str) -> None:
        """Copy the end of the log.

        If this fails, raise the error. If the pod ended long ago, only log the error.
        """
        try:
            self.update_log(pod_id, cluster, path)
        except RuntimeFailure as failure:
            entry = self._ledger.find(pod_id)
            ended_at = entry.ended.ended_at if entry is not None and entry.ended is not None else None
            if ended_at is None or datetime.now(UTC) - ended_at < LOG_PATIENCE:
                raise
            log.warning("the end of the log of pod %s is lost: %s", pod_id, failure)

    def update_log(self, pod_id: str, cluster: Cluster, path: str) -> None:
        """Append new output to the pod's log copy. Raises RuntimeFailure if the output cannot be fetched."""
        with translate_failures(cluster.api.server):
            self._copies.update(pod_id, partial(fetch_log, cluster.api, f"{path}/log"))

    def _ensure_namespace(self, cluster: Cluster, namespace: str, project: str) -> None:
        key = cluster.api.server, namespace
        if key not in self._namespaces:
            ensure_namespace(cluster, namespace, project)
            self._namespaces.add(key)


def _grace_period(spec: Mapping[str, Any], grace: int) -> int:
    """Return the grace period in seconds for deleting the pod.

    If `grace` is shorter than the command's own grace period, both containers are killed at the same time.
    """
    whole = int(spec.get("terminationGracePeriodSeconds") or 1)
    keeps_files = any(each["name"] == FILES_CONTAINER for each in spec.get("containers") or ())
    of_command = whole - COPY_SECONDS if keeps_files else whole
    return whole if max(grace, 1) >= of_command else max(grace, 1)


@contextmanager
def translate_failures(label: str) -> Iterator[None]:
    """Convert errors from the API server to RuntimeFailure. `label` is the API server's address or the pool's
    name.
    """
    try:
        yield
    except ApiError as error:
        message = f"the Kubernetes API server ({label}) rejected a request: {error.message}"
        raise RuntimeFailure(message) from error
    except (Unreachable, ForeignNamespace) as error:
        raise RuntimeFailure(str(error)) from error
