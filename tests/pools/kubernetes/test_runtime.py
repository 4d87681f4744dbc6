"""Tests for the Kubernetes runtime with unusual clusters or pod specs."""

import json
from dataclasses import replace

import pytest

from pools.kubernetes.mirror import Mirror
from pools.runtimes.base import (
    PodCause,
    PodState,
    RuntimeFailure,
    StartRejected,
    VolumeMount,
)
from pools.runtimes.shim.channels.frames import STATUS
from tests.contracts.kubernetes.stage import POOL, FakeKubernetesStage
from tests.contracts.pods import ended, running
from tests.contracts.test_runtime import exchange
from tests.fakes.kubernetes.store import Rejection


def test_pod_missing_from_a_delayed_watch_is_not_reported_as_ended(
    stage: FakeKubernetesStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.runtime.start(stage.long("p-1"))
    running(stage.runtime, "p-1")
    monkeypatch.setattr(Mirror, "own_pods", lambda mirror, pool, patience: {})
    assert stage.runtime.get_reports(["p-1"])["p-1"].state is PodState.RUNNING
    stage.cluster.rejections["get", "pods"] = Rejection(500, "InternalError", "try again")
    report = stage.runtime.get_reports(["p-1"])["p-1"]
    assert report.state is PodState.STARTING, "the scheduler leaves the pod's state unchanged"
    assert "try again" in report.progress
    stage.cluster.rejections.clear()
    stage.cluster.store.remove("pods", stage.namespace, "p-1")
    assert stage.runtime.get_reports(["p-1"])["p-1"].state is PodState.EXITED


def test_pod_mirror_does_not_store_environment_variables(stage: FakeKubernetesStage) -> None:
    # The environment is most of a pod object, and a cluster may have thousands of pods.
    assert stage.access[POOL].cluster.mirror.pods() == []
    stage.runtime.start(replace(stage.long("p-1"), env={"DATASET": "imagenet"}))
    running(stage.runtime, "p-1")
    (pod,) = stage.access[POOL].cluster.mirror.pods()
    assert pod["metadata"]["name"] == "p-1"
    assert "imagenet" not in json.dumps(pod)


def test_pod_mounts_its_volumes_from_hosts_and_nfs(stage: FakeKubernetesStage) -> None:
    volumes = (
        VolumeMount("data", "/mnt/data", "/data"),
        VolumeMount("scratch", "nfs://nfs.example.org/exports/scratch", "/scratch", is_writable=True),
    )
    stage.runtime.start(replace(stage.long("p-1"), volumes=volumes))
    spec = stage.cluster.pod("p-1")["spec"]
    sources = {volume["name"]: volume for volume in spec["volumes"]}
    mounts = {mount["mountPath"]: mount for mount in spec["containers"][0]["volumeMounts"]}
    data, scratch = mounts["/data"], mounts["/scratch"]
    assert (data["readOnly"], scratch["readOnly"]) == (True, False)
    assert sources[data["name"]]["hostPath"] == {"path": "/mnt/data", "type": "Directory"}
    nfs = {"server": "nfs.example.org", "path": "/exports/scratch", "readOnly": False}
    assert sources[scratch["name"]]["nfs"] == nfs


@pytest.mark.parametrize(("devices", "visible"), [((), ["void"]), ((0, 1), [])])
def test_document_cannot_choose_the_visible_gpus(
    stage: FakeKubernetesStage, devices: tuple[int, ...], visible: list[str]
) -> None:
    every = {"NVIDIA_VISIBLE_DEVICES": "all"}
    order = stage.order("p-1", env={**every, "RANK": "0"}, secret_env=every, devices=devices)
    stage.runtime.start(replace(order, address_env=("NVIDIA_VISIBLE_DEVICES",)))
    variables = stage.cluster.pod("p-1")["spec"]["containers"][0]["env"]
    named = [variable for variable in variables if variable["name"] == "NVIDIA_VISIBLE_DEVICES"]
    assert [variable.get("value") for variable in named] == visible
    assert {"name": "RANK", "value": "0"} in variables


QUOTA = (
    'pods "p-1" is forbidden: exceeded quota: team, requested: {requested}, used: requests.nvidia.com/gpu=4, '
    "limited: requests.nvidia.com/gpu=4"
)


def reject_pods(stage: FakeKubernetesStage, message: str) -> None:
    stage.cluster.rejections["create", "pods"] = Rejection(403, "Forbidden", message)


def test_pod_blocked_by_cluster_quota_reports_quota_usage(stage: FakeKubernetesStage) -> None:
    reject_pods(stage, QUOTA.format(requested="requests.nvidia.com/gpu=1"))
    with pytest.raises(StartRejected) as raised:
        stage.runtime.start(stage.long("p-1"))
    assert str(raised.value) == (
        f"the cluster's quota team for the namespace {stage.namespace} is exceeded "
        "(nvidia.com/gpu: 1 requested, 4 of 4 used)"
    )
    stage.cluster.rejections.clear()
    stage.runtime.start(stage.long("p-1"))
    running(stage.runtime, "p-1")


@pytest.mark.parametrize(
    ("message", "part"),
    [
        ('pods "p-1" is forbidden: maximum cpu usage per Pod is 1, but limit is 2', "maximum cpu usage per"),
        ('pods "p-1" is forbidden: violates PodSecurity "restricted:latest"', "violates PodSecurity"),
        ('admission webhook "images.example.org" denied the request: no tag', "denied the request: no tag"),
    ],
)
def test_permanently_rejected_pod_fails_with_the_clusters_message(
    stage: FakeKubernetesStage, message: str, part: str
) -> None:
    reject_pods(stage, message)
    stage.runtime.start(stage.long("p-1"))
    report = ended(stage.runtime, "p-1")
    assert report.cause is PodCause.START_FAILED
    assert part in report.message


@pytest.mark.parametrize(
    "rejection",
    [
        Rejection(403, "Forbidden", 'pods "p-1" is forbidden: status unknown for quota: team'),
        Rejection(403, "Forbidden", QUOTA.format(requested="requests.nvidia.com/gpu=8")),
        Rejection(
            500, "InternalError", 'failed calling webhook "images.example.org": context deadline exceeded'
        ),
    ],
)
def test_temporarily_rejected_pod_starts_later(stage: FakeKubernetesStage, rejection: Rejection) -> None:
    stage.cluster.rejections["create", "pods"] = rejection
    with pytest.raises(StartRejected):
        stage.runtime.start(stage.long("p-1"))
    stage.cluster.rejections.clear()
    stage.runtime.start(stage.long("p-1"))
    running(stage.runtime, "p-1")


def test_foreign_namespaces_and_pods_are_never_changed(stage: FakeKubernetesStage) -> None:
    stage.cluster.store.put("namespaces", {"metadata": {"name": stage.namespace}})
    with pytest.raises(RuntimeFailure, match="already exists, but does not belong to this installation"):
        stage.runtime.start(stage.long("p-1"))
    labels = {"berth.dev/installation": stage.installation}
    stage.cluster.store.put("namespaces", {"metadata": {"name": stage.namespace, "labels": labels}})
    theirs = {"metadata": {"name": "p-1", "namespace": stage.namespace, "uid": "u"}, "spec": {}, "status": {}}
    stage.cluster.store.put("pods", theirs)
    with pytest.raises(RuntimeFailure, match="contains the pod p-1, which Berth did not create"):
        stage.runtime.start(stage.long("p-1"))
    assert stage.cluster.pod("p-1")["metadata"]["uid"] == "u"


def test_error_for_a_missing_permission_to_run_commands_names_the_role(stage: FakeKubernetesStage) -> None:
    stage.runtime.start(stage.long("p-1"))
    running(stage.runtime, "p-1")
    stage.cluster.forbid("get", "pods/exec")
    frames = exchange(stage.runtime.open_channel("p-1"), ["true"], b"")
    status = json.loads(frames[STATUS])
    assert "may not use pods/exec. Apply this version's deploy/kubernetes/role.yaml" in status["error"]
    assert status["status"] == 409
    stage.cluster.forbid("get", "pods/portforward")
    frames = exchange(stage.runtime.open_channel("p-1"), {"connect": 80}, b"")
    status = json.loads(frames[STATUS])
    assert status["error"].startswith("Ports of this pod cannot be forwarded: Berth's account in the cluster")
    assert "may not use pods/portforward" in status["error"]
