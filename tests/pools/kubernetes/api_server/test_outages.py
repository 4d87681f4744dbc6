"""Tests for outages of the API server, lost responses, lost records and other users of the cluster."""

from datetime import timedelta
from pathlib import Path

import pytest

from pools.kubernetes.cluster import Clusters, PoolAccess
from pools.kubernetes.runtime import KubernetesRuntime
from pools.runtimes.base import PodCause, PodReport, PodState, RuntimeFailure
from tests.contracts.kubernetes.stage import POOL, FakeKubernetesStage
from tests.contracts.pods import ended, poll_until, running
from tests.fakes.kubernetes.store import Rejection
from tests.pools.kubernetes.api_server.test_clock_skew import make_older


def second_runtime(stage: FakeKubernetesStage, root: Path, installation: str) -> KubernetesRuntime:
    """Return a runtime without records on the same cluster, for this installation or a different one."""
    clusters = Clusters(lambda: installation, stage.patience)
    stage._all.append(clusters)
    access = PoolAccess(clusters.get(stage._connection), stage._settings)
    return KubernetesRuntime(root, lambda: {POOL: access})


def report(stage: FakeKubernetesStage, pod_id: str) -> PodReport | None:
    """Return the pod's report, or None while the cluster cannot be reached."""
    try:
        return stage.runtime.get_reports([pod_id])[pod_id]
    except RuntimeFailure:
        return None


def final_report(stage: FakeKubernetesStage, pod_id: str) -> PodReport:
    """Wait until the pod is reported as ended, and return the report."""
    seen = poll_until(
        lambda: report(stage, pod_id), lambda seen: seen is not None and seen.state is PodState.EXITED
    )
    assert seen is not None
    return seen


@pytest.mark.heavy
def test_pods_that_end_during_an_outage_are_reported_afterwards(stage: FakeKubernetesStage) -> None:
    for pod_id in ("done", "deleted", "goes-on"):
        stage.runtime.start(stage.long(pod_id))
        running(stage.runtime, pod_id)
    stage.cluster.is_down = True
    stage.cluster.end_pod("done", 3)
    stage.cluster.store.remove("pods", stage.namespace, "deleted")
    poll_until(lambda: report(stage, "goes-on") is None)
    with pytest.raises(RuntimeFailure, match="cannot be reached"):
        stage.runtime.start(stage.long("later"))
    stage.cluster.is_down = False
    # The server responds again before the watch has delivered the changes of the outage.
    assert final_report(stage, "done").exit_code == 3
    assert final_report(stage, "deleted").cause is PodCause.EVICTED
    assert running(stage.runtime, "goes-on").exit_code is None
    stage.runtime.start(stage.long("later"))
    running(stage.runtime, "later")


def test_pod_that_ends_while_the_watch_is_expired_is_reported(stage: FakeKubernetesStage) -> None:
    stage.runtime.start(stage.long("p-1"))
    running(stage.runtime, "p-1")
    stage.cluster.is_down = True
    poll_until(lambda: report(stage, "p-1") is None)
    stage.cluster.end_pod("p-1", 4)
    stage.cluster.store.compact()  # the watch cannot continue where it ended
    stage.cluster.is_down = False
    assert final_report(stage, "p-1").exit_code == 4


@pytest.mark.heavy
def test_lost_connections_do_not_revert_reports_to_an_earlier_state(stage: FakeKubernetesStage) -> None:
    stage.runtime.start(stage.long("goes-on"))
    running(stage.runtime, "goes-on")
    stage.runtime.start(stage.long("done"))
    stage.cluster.end_pod("done", 3)
    final_report(stage, "done")
    stage.cluster.watched_from.clear()
    stage.cluster.is_down = True
    poll_until(lambda: report(stage, "goes-on") is None)
    stage.cluster.is_down = False
    poll_until(lambda: report(stage, "goes-on") is not None)
    poll_until(lambda: stage.cluster.watched_from.get("pods"))
    last_change = int(stage.cluster.pod("done")["metadata"]["resourceVersion"])
    assert min(stage.cluster.watched_from["pods"]) >= last_change


def test_pod_with_an_unconfirmed_creation_is_created_only_once(stage: FakeKubernetesStage) -> None:
    stage.cluster.lost_responses.add(("create", "pods"))
    with pytest.raises(RuntimeFailure, match="cannot be reached"):
        stage.runtime.start(stage.long("p-1"))
    uid = stage.cluster.pod("p-1")["metadata"]["uid"]
    stage.cluster.lost_responses.clear()
    stage.runtime.start(stage.long("p-1"))
    running(stage.runtime, "p-1")
    assert [pod["metadata"]["uid"] for pod in stage.cluster.store.of_kind("pods")] == [uid]


def test_pods_without_records_are_found_and_can_be_stopped(
    stage: FakeKubernetesStage, tmp_path: Path
) -> None:
    stage.runtime.start(stage.long("p-1"))
    running(stage.runtime, "p-1")
    restored = second_runtime(stage, tmp_path / "restored", stage.installation)
    assert restored.list_pods() == ("p-1",)
    restored.stop("p-1", 0)
    ended(restored, "p-1")
    restored.forget("p-1")
    assert (restored.list_pods(), stage.cluster.store.of_kind("pods")) == ((), [])


def test_installation_does_not_touch_pods_of_other_installations(
    stage: FakeKubernetesStage, tmp_path: Path
) -> None:
    stage.runtime.start(stage.long("p-1"))
    other = second_runtime(stage, tmp_path / "other", "other")
    assert other.list_pods() == ()
    other.stop("p-1", 0)
    running(stage.runtime, "p-1")
    other.start(stage.long("p-2"))
    running(other, "p-2")
    assert stage.runtime.list_pods() == ("p-1",)
    namespaces = {pod["metadata"]["namespace"] for pod in stage.cluster.store.of_kind("pods")}
    assert namespaces == {f"berth-{stage.installation}-vision", "berth-other-vision"}


def test_deleted_namespace_is_created_again(stage: FakeKubernetesStage) -> None:
    stage.runtime.start(stage.long("p-1"))
    running(stage.runtime, "p-1")
    message = f'namespace "{stage.namespace}" cannot be changed because it is being terminated'
    stage.cluster.rejections["create", "pods"] = Rejection(
        403, "Forbidden", f'pods "p-2" is forbidden: {message}'
    )
    with pytest.raises(RuntimeFailure, match="is being terminated"):
        stage.runtime.start(stage.long("p-2"))
    stage.cluster.rejections.clear()
    stage.cluster.store.remove("pods", stage.namespace, "p-1")
    stage.cluster.store.remove("namespaces", "", stage.namespace)
    with pytest.raises(RuntimeFailure):  # the namespace existed a moment ago
        stage.runtime.start(stage.long("p-2"))
    stage.runtime.start(stage.long("p-2"))
    running(stage.runtime, "p-2")


@pytest.mark.parametrize(
    ("reason", "message"),
    [
        ("", "the pod was deleted in Kubernetes, for example by `kubectl drain`"),
        ("EvictionByEvictionAPI", "the pod was evicted in Kubernetes, for example by `kubectl drain`"),
        ("DeletionByTaintManager", "the pod was evicted in Kubernetes because of a taint on its node"),
        ("PreemptionByScheduler", "the pod was preempted in Kubernetes for a pod with a higher priority"),
    ],
)
def test_deletion_is_reported_only_if_another_client_deleted_the_pod(
    stage: FakeKubernetesStage, reason: str, message: str
) -> None:
    for pod_id in ("drained", "stopped"):
        stage.runtime.start(stage.long(pod_id))
        running(stage.runtime, pod_id)
    if reason:
        condition = {"type": "DisruptionTarget", "status": "True", "reason": reason}
        pod = stage.cluster.pod("drained")
        pod["status"].setdefault("conditions", []).append(condition)
    stage.cluster.delete_pod(stage.namespace, "drained", 1)
    stage.runtime.stop("stopped", 1)
    assert [ended(stage.runtime, pod_id).message for pod_id in ("drained", "stopped")] == [message, ""]
    causes = [ended(stage.runtime, pod_id).cause for pod_id in ("drained", "stopped")]
    assert causes == [PodCause.EVICTED, PodCause.STOPPED]


def test_pods_that_berth_deletes_just_before_a_crash_are_not_reported_as_evicted(
    stage: FakeKubernetesStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.cluster.add_foreign_pod("theirs", "node-1", gpus=8)
    stage.runtime.start(stage.order("unplaceable", "train", devices=(0,)))
    stage.runtime.start(stage.long("stopped"))
    running(stage.runtime, "stopped")
    # The process dies between the deletion of a pod and the record of its end.
    monkeypatch.setattr(stage.runtime.ledger, "record_final_report", lambda pod_id, report: report)
    poll_until(lambda: stage.runtime.get_reports(["unplaceable"])["unplaceable"].progress != "")
    make_older(stage, "unplaceable", timedelta(seconds=31))
    ended(stage.runtime, "unplaceable")
    stage.runtime.stop("stopped", 1)
    poll_until(lambda: [pod["metadata"]["name"] for pod in stage.cluster.store.of_kind("pods")] == ["theirs"])
    stage.restart()
    reports = [ended(stage.runtime, pod_id) for pod_id in ("unplaceable", "stopped")]
    assert [report.cause for report in reports] == [PodCause.LOST, PodCause.STOPPED]
    assert "could not place the pod: 0/1 nodes are available" in reports[0].message
    assert reports[1].message == ""


def test_failed_call_for_one_pod_does_not_delay_the_reports_of_other_pods(stage: FakeKubernetesStage) -> None:
    stage.runtime.start(stage.long("done"))
    running(stage.runtime, "done")
    stage.cluster.add_foreign_pod("theirs", "node-1", gpus=8)
    stage.runtime.start(stage.order("unplaceable", "train", devices=(0,)))
    poll_until(lambda: stage.runtime.get_reports(["unplaceable"])["unplaceable"].progress != "")
    stage.cluster.rejections["delete", "pods"] = Rejection(500, "InternalError", "try again")
    make_older(stage, "unplaceable", timedelta(seconds=31))
    stage.cluster.end_pod("done", 3)
    reports = poll_until(
        lambda: stage.runtime.get_reports(["unplaceable", "done"]),
        lambda seen: "try again" in seen["unplaceable"].progress and seen["done"].state is PodState.EXITED,
    )
    assert (reports["unplaceable"].state, reports["done"].exit_code) == (PodState.STARTING, 3)
    stage.cluster.rejections.clear()
    assert ended(stage.runtime, "unplaceable").cause is PodCause.LOST


def test_pod_deleted_by_another_client_after_a_late_start_counts_as_evicted(
    stage: FakeKubernetesStage,
) -> None:
    stage.cluster.add_foreign_pod("theirs", "node-1", gpus=8)
    stage.runtime.start(stage.order("p-1", "train", devices=(0,)))
    poll_until(lambda: stage.runtime.get_reports(["p-1"])["p-1"].progress != "")
    stage.cluster.rejections["delete", "pods"] = Rejection(500, "InternalError", "try again")
    make_older(stage, "p-1", timedelta(seconds=31))
    poll_until(lambda: "try again" in stage.runtime.get_reports(["p-1"])["p-1"].progress)
    stage.cluster.store.remove("pods", "others", "theirs")
    stage.cluster._schedule(stage.cluster.pod("p-1"))
    poll_until(lambda: report(stage, "p-1"), lambda seen: seen is not None and seen.state is PodState.RUNNING)
    stage.cluster.rejections.clear()
    stage.cluster.delete_pod(stage.namespace, "p-1", 1)
    assert ended(stage.runtime, "p-1").cause is PodCause.EVICTED


@pytest.mark.parametrize(
    ("reason", "text", "cause", "message"),
    [
        ("Evicted", "The node was low on memory.", PodCause.EVICTED,
         "the pod was evicted by its node: The node was low on memory"),
        ("Preempting", "", PodCause.EVICTED, "the pod was evicted by its node: Preempting"),
        ("OutOfcpu", "Node did not have enough cpu.", PodCause.LOST,
         "the node rejected the pod: OutOfcpu: Node did not have enough cpu."),
    ],
)  # fmt: skip
def test_pod_evicted_by_its_node_reports_the_reason(
    stage: FakeKubernetesStage, reason: str, text: str, cause: PodCause, message: str
) -> None:
    stage.runtime.start(stage.long("p-1"))
    running(stage.runtime, "p-1")
    stage.cluster.fail_pod("p-1", reason, text)
    report = ended(stage.runtime, "p-1")
    assert (report.cause, report.message) == (cause, message)
