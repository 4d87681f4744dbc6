"""Test the way from a real Kubernetes cluster to a reclaimed gang that resumes.

The cluster has real kubelets, containers, networks and a scheduler. Its GPUs are a number that the nodes
offer: no device is behind it.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pools.kubernetes.api import Api
from pools.kubernetes.credentials import parse_kubeconfig
from tests.contracts.kubernetes_cluster import GPU, missing_parts, real_cluster, set_gpus, with_shipped_role
from tests.images.registry import PASSWORD, USER, Registry, missing_programs, running_registry
from tests.journeys.command import Terminal, sign_in
from tests.journeys.installation import Installation, until

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(900)]

# Each worker counts steps, saves the count when it is stopped, and continues from it.
TRAIN = """
step=$(cat step-$RANK 2>/dev/null || echo 0)
echo "starts at $step with $WORLD_SIZE workers, first $MASTER_ADDR"
trap 'echo $step > step-$RANK; echo "saved $step"; exit 0' TERM
while [ ! -e finish ]; do step=$((step + 1)); sleep 0.1; done
echo "ends at $step"
"""


@dataclass
class Prod:
    """The cluster of the journey. `api` is its admin's, and `config` a kubeconfig with the shipped role."""

    api: Api
    config: Path
    image: str
    workspaces: Path

    def objects(self, kind: str) -> list[dict[str, Any]]:
        """Return the objects in the namespaces of projects."""
        listed, _ = self.api.list(f"/api/v1/{kind}")
        return [item for item in listed if item["metadata"]["namespace"].startswith("berth-")]

    def add_foreign_pod(self, name: str, node: str) -> None:
        resources = {"limits": {GPU: "1", "cpu": "100m", "memory": "32Mi"}}
        container = {
            "name": "c", "image": "berth.test/busybox:1", "imagePullPolicy": "Never",
            "command": ["sleep", "3600"], "resources": resources,
        }  # fmt: skip
        spec = {"nodeName": node, "containers": [container], "terminationGracePeriodSeconds": 0}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
        self.api.create("/api/v1/namespaces/default/pods", pod)


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    if missing := missing_programs():
        pytest.skip(f"not installed: {', '.join(missing)}")
    with running_registry(tmp_path_factory.mktemp("registry")) as running:
        yield running


@pytest.fixture(scope="module")
def prod(tmp_path_factory: pytest.TempPathFactory, registry: Registry) -> Iterator[Prod]:
    if missing := missing_parts():
        pytest.skip(f"NO REAL KUBERNETES: {missing}")
    registry.push("vision/train", tag="1", Env=["PATH=/bin"])
    with real_cluster(tmp_path_factory.mktemp("cluster")) as kubeconfig:
        for node in ("node-1", "node-2"):
            set_gpus(kubeconfig, node, 3)
        config = tmp_path_factory.mktemp("kubeconfig") / "config"
        config.write_text(with_shipped_role(kubeconfig))
        workspaces = tmp_path_factory.mktemp("workspaces")
        api = Api(parse_kubeconfig(kubeconfig))
        prod = Prod(api, config, f"{registry.address}/vision/train:1", workspaces)
        prod.add_foreign_pod("theirs", "node-2")
        yield prod
        api.delete("/api/v1/namespaces/default/pods/theirs", 0)
        for namespace in api.list("/api/v1/namespaces")[0]:
            if namespace["metadata"]["name"].startswith("berth-"):
                api.delete(f"/api/v1/namespaces/{namespace['metadata']['name']}")
        api.close()


def create_pool(admin: Terminal, prod: Prod) -> str:
    """Create the pool. Return the preview."""
    settings = f"{{gpu_resource: {GPU}, workspaces: {{host_path: {prod.workspaces}}}}}"
    options = (
        "--provider", "kubernetes", "--kubeconfig", str(prod.config), "--nodes", "2", "--gpus-per-node", "3",
        "--set", f"provider_settings={settings}", "--set", "reconcile_tick=1",
    )  # fmt: skip
    shown = admin.berth("pool", "create", "prod", *options, "--dry-run")
    admin.berth("pool", "create", "prod", *options)
    for owner, gpus in (
        (["research", "--department"], 2),
        (["product", "--department"], 2),
        (["vision"], 2),
        (["ads"], 2),
    ):
        admin.berth("quota", "set", *owner, "--pool", "prod", "--gpu", str(gpus))
    return shown


def submit(terminal: Terminal, prod: Prod, name: str, project: str) -> None:
    worker = {"name": "worker", "replicas": 2, "gpu": 1, "cpu": 0.1, "memory_mib": 32}
    document = {
        "name": name, "project": project, "pools": ["prod"], "image": prod.image, "grace_period_seconds": 20,
        "roles": [{**worker, "command": ["sh", "-c", TRAIN]}],
    }  # fmt: skip
    terminal.berth("submit", "-f", "-", stdin=json.dumps(document))


def test_gang_is_reclaimed_with_grace_and_resumes_from_its_checkpoint(
    berth: Installation, prod: Prod, registry: Registry, tmp_path: Path
) -> None:
    admin, carol, dave, grace = (
        sign_in(berth, name, tmp_path / name) for name in ("admin", "carol", "dave", "grace")
    )
    vision, ads = dave.client(), grace.client()

    def phase(client: Any, name: str) -> str:
        return str(client.workloads.find(name).phase)

    def reaches(client: Any, name: str, wanted: str) -> None:
        until(
            lambda: phase(client, name) == wanted,
            details=lambda: (client.workloads.find(name).message, prod.objects("pods")),
        )

    # The preview shows both nodes, the foreign pod and no error: the shipped role is enough.
    shown = create_pool(admin, prod)
    assert re.search(r"node-1 +3 +3 ", shown), shown
    assert re.search(r"node-2 +3 +2 .*1 pod of others", shown), shown
    assert "2 of 2 nodes can be used: 6 GPUs, 5 of them free." in shown
    assert "error:" not in shown

    # The image is in a registry that requires a login, which the cluster gets from a secret of the project.
    for lead, project in ((carol, "vision"), (admin, "ads")):
        login = ("--registry", registry.address, "-u", USER)
        lead.berth("secret", "set", "registry", "-p", project, *login, stdin=PASSWORD)

    # vision has a quota of two GPUs and borrows two of the others' three.
    for name in ("older", "younger"):
        submit(dave, prod, name, "vision")
        reaches(vision, name, "running")
    first = vision.workloads.find("younger").id
    until(lambda: b"starts at 0 with 2 workers" in vision.workloads.log(first).data)

    # The owner of the quota takes it back. Both workers save their state within the grace period.
    submit(grace, prod, "ranking", "ads")
    reaches(ads, "ranking", "running")
    assert phase(vision, "younger") == "pending"
    assert vision.workloads.find("younger").preemptions == 1
    saved = dave.berth("logs", "younger", "--run", "1")
    step = int(re.search(r"saved (\d+)", saved).group(1))  # type: ignore[union-attr]
    assert step > 0

    # Once the owner has finished, the gang continues where it stopped, and ends.
    (prod.workspaces / workspace(prod, "ranking") / "finish").touch()
    reaches(ads, "ranking", "completed")
    reaches(vision, "younger", "running")
    until(lambda: f"starts at {step} with 2 workers" in dave.berth("logs", "younger"))
    for name in ("younger", "older"):
        (prod.workspaces / workspace(prod, name) / "finish").touch()
        reaches(vision, name, "completed")
    assert re.search(r"ends at \d+", dave.berth("logs", "younger"))

    # Nothing is left in the cluster but the namespaces, and what others run there.
    until(lambda: prod.objects("pods") == [])
    until(lambda: not [s for s in prod.objects("secrets") if "service-account" not in s["type"]])
    foreign = prod.api.get("/api/v1/namespaces/default/pods/theirs")
    assert foreign["status"]["phase"] == "Running"


def workspace(prod: Prod, name: str) -> str:
    """Return the directory of the workload's workspace."""
    names = {
        pod["metadata"]["annotations"]["berth.dev/name"]: pod["metadata"]["labels"]["berth.dev/workload"]
        for pod in prod.objects("pods")
    }
    return str(names[f"{name}-worker-0"])
