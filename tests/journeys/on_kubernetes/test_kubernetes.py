"""Test the path from an existing Kubernetes cluster to a reclaimed gang that resumes."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from berth.client import Client
from tests.fakes.kubernetes import FakeCluster, serve
from tests.journeys.command import Terminal, sign_in
from tests.journeys.installation import Installation, until
from tests.support.present import present

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(900)]

IMAGE = "registry.example.org/vision/train@sha256:" + "a" * 64
GANG = """
name: {name}
project: {project}
pools: [prod]
image: {image}
grace_period_seconds: 5
roles:
  - {{name: worker, replicas: 2, gpu: 1, cpu: 1, memory_mib: 64, command: [train]}}
"""


@pytest.fixture
def cluster() -> FakeCluster:
    cluster = FakeCluster()
    for number in range(3):
        cluster.add_node(f"gpu-{number}", gpus=2, labels={"gpus": "yes", "zone": f"z{number}"})
    cluster.add_node("control-plane")
    return cluster


@pytest.fixture
def kubeconfig(cluster: FakeCluster, tmp_path: Path) -> Iterator[Path]:
    with serve(cluster) as url:
        yield write_kubeconfig(tmp_path / "kubeconfig", url)


def write_kubeconfig(path: Path, url: str) -> Path:
    document = {
        "current-context": "other",
        "contexts": [{"name": "prod", "context": {"cluster": "prod", "user": "berth"}}],
        "clusters": [{"name": "prod", "cluster": {"server": url}}],
        "users": [{"name": "berth", "user": {"token": "secret-token"}}],
    }
    path.write_text(yaml.safe_dump(document))
    return path


def create_pool(admin: Terminal, kubeconfig: Path, *options: str) -> None:
    cluster = ["--kubeconfig", str(kubeconfig), "--context", "prod", "--node-selector", "gpus=yes"]
    shape = ["--provider", "kubernetes", "--nodes", "3", "--gpus-per-node", "2", "--set", "reconcile_tick=1"]
    admin.berth("pool", "create", "prod", *shape, *cluster, *options)
    for owner, gpus in (
        (["research", "--department"], 2),
        (["product", "--department"], 2),
        (["vision"], 2),
        (["ads"], 2),
    ):
        admin.berth("quota", "set", *owner, "--pool", "prod", "--gpu", str(gpus))


def submit(terminal: Terminal, name: str, project: str) -> None:
    terminal.berth("submit", "-f", "-", stdin=GANG.format(name=name, project=project, image=IMAGE))


def find_pods(cluster: FakeCluster, workload: str) -> list[dict[str, Any]]:
    """Return the workload's pods in the cluster, ordered by rank."""
    pods = [
        pod
        for pod in cluster.store.of_kind("pods")
        if f"{workload}-worker" in str(pod["metadata"].get("annotations"))
    ]
    return sorted(pods, key=lambda pod: variables(pod)["RANK"])


def variables(pod: dict[str, Any]) -> dict[str, Any]:
    return {
        entry["name"]: entry.get("value") or entry["valueFrom"]
        for entry in pod["spec"]["containers"][0]["env"]
    }


def test_gang_on_kubernetes_is_reclaimed_and_resumes(
    berth: Installation, cluster: FakeCluster, kubeconfig: Path, tmp_path: Path
) -> None:
    admin, dave, grace = (sign_in(berth, name, tmp_path / name) for name in ("admin", "dave", "grace"))
    vision, ads = dave.client(), grace.client()

    def phase(client: Client, name: str) -> str:
        return str(client.workloads.find(name).phase)

    def until_running(client: Client, name: str) -> None:
        until(lambda: phase(client, name) == "running")

    cluster.add_foreign_pod("theirs", "gpu-1", gpus=2)
    create_pool(admin, kubeconfig)
    assert "secret-token" not in admin.berth("pool", "describe", "prod", "-o", "json")
    node = until(lambda: next((n for n in admin.client().nodes.list(pool="prod") if n.foreign), None))
    foreign = present(node.foreign)
    assert (foreign.gpus, foreign.pods, node.capacity.gpu) == (2, 1, 0)

    # vision has a quota of 2 of the 4 GPUs that are left, and borrows the others.
    for name in ("older", "younger"):
        submit(dave, name, "vision")
        until_running(vision, name)
    first, second = find_pods(cluster, "older")
    namespace, spec = first["metadata"]["namespace"], first["spec"]
    assert namespace.startswith("berth-")
    assert namespace.endswith("-vision")
    assert spec["containers"][0]["resources"]["limits"] == {
        "cpu": "1000m",
        "memory": "64Mi",
        "nvidia.com/gpu": "1",
    }
    assert variables(first)["MASTER_ADDR"] == {"fieldRef": {"fieldPath": "status.podIP"}}
    assert variables(second)["MASTER_ADDR"] == first["status"]["podIP"]
    assert variables(second)["WORLD_SIZE"] == "2"

    # ads requests the two GPUs of its quota, so the borrower's newest gang is reclaimed.
    submit(grace, "ranking", "ads")
    until_running(ads, "ranking")
    assert (phase(vision, "older"), phase(vision, "younger")) == ("running", "pending")
    assert vision.workloads.find("younger").preemptions == 1
    assert find_pods(cluster, "younger") == []

    for pod in find_pods(cluster, "ranking"):
        cluster.write(pod["metadata"]["name"], b"epoch 1\n")
        cluster.end_pod(pod["metadata"]["name"], 0)
    until(lambda: phase(ads, "ranking") == "completed")
    assert ads.workloads.log(ads.workloads.find("ranking").id).data == b"epoch 1\n"
    until_running(vision, "younger")

    # The node evicts a pod of a gang. The pod is replaced, and the gang does not fail.
    evicted = find_pods(cluster, "older")[1]["metadata"]["name"]
    cluster.fail_pod(evicted, "Evicted", "The node was low on memory.")
    until(lambda: [pod["status"]["phase"] for pod in find_pods(cluster, "older")].count("Running") == 2)
    until(lambda: evicted not in str(find_pods(cluster, "older")))
    assert phase(vision, "older") == "running"
    (record,) = vision.evictions.list(kind="cluster")
    assert (record.workload_name, record.rule.partition(", ")[2]) == (
        "older", "the pod was evicted by its node: The node was low on memory.",
    )  # fmt: skip

    dave.berth("cancel", "older", "younger")
    until(lambda: {phase(vision, "older"), phase(vision, "younger")} == {"cancelled"})
    until(lambda: find_pods(cluster, "older") == find_pods(cluster, "younger") == [])
