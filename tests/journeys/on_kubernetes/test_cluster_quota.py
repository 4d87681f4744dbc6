"""Test workloads that a ResourceQuota of a real cluster limits."""

import json
from typing import Any

import pytest

from tests.contracts.kubernetes.cluster import GPU, patch
from tests.images.registry import Registry
from tests.journeys.command import Terminal
from tests.journeys.installation import Installation, Visitor, until
from tests.journeys.on_kubernetes.prod import Prod, create_pool, sign_in_users

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(900)]


def submit(terminal: Terminal, prod: Prod, name: str, replicas: int) -> None:
    worker = {
        "name": "worker", "replicas": replicas, "gpu": 1, "cpu": 0.1, "memory_mib": 32,
        "command": ["sleep", "600"],
    }  # fmt: skip
    document = {
        "name": name, "project": "vision", "pools": ["prod"], "image": prod.image, "grace_period_seconds": 1,
        "roles": [worker],
    }  # fmt: skip
    terminal.berth("submit", "-f", "-", stdin=json.dumps(document))


def pods_of(prod: Prod, name: str) -> list[dict[str, Any]]:
    return [pod for pod in prod.objects("pods") if f"{name}-worker" in str(pod["metadata"]["annotations"])]


def test_gang_starts_once_the_cluster_quota_has_room(
    berth: Installation, prod: Prod, registry: Registry, tmp_path_factory: pytest.TempPathFactory
) -> None:
    users = sign_in_users(berth, registry, tmp_path_factory.mktemp("users"))
    create_pool(users.admin, prod)
    dave, client = users.dave, users.dave.client()

    def phase(name: str) -> str:
        return str(client.workloads.find(name).phase)

    def reach(name: str, wanted: str) -> None:
        until(lambda: phase(name) == wanted, details=lambda: client.workloads.find(name).message)

    submit(dave, prod, "first", 1)
    reach("first", "running")
    (pod,) = pods_of(prod, "first")
    namespace = pod["metadata"]["namespace"]
    path, hard = f"/api/v1/namespaces/{namespace}/resourcequotas", f"requests.{GPU}"
    quota = {"metadata": {"name": "team-a"}, "spec": {"hard": {hard: "2"}}}
    prod.api.create(path, {"apiVersion": "v1", "kind": "ResourceQuota", **quota})
    until(lambda: prod.api.get(f"{path}/team-a").get("status", {}).get("used") == {hard: "1"})

    # The gang of two does not start at all, and page, command line and REST show the quota with its numbers.
    sentence = (
        f"The cluster's quota `team-a` in namespace `{namespace}` allows 2 {GPU}; 1 is used, "
        "and this workload requests 2."
    )
    submit(dave, prod, "gang", 2)
    until(lambda: sentence in dave.berth("why", "gang"), details=lambda: dave.berth("why", "gang"))
    workload = client.workloads.find("gang")
    assert (workload.phase, workload.reason, workload.message) == ("pending", "ClusterQuota", sentence)
    assert client.workloads.explain(workload.id).blockers[0].numbers["missing"] == 1000
    visitor = Visitor(f"http://127.0.0.1:{berth.port}")
    visitor.sign_in("admin", (berth.home / "admin-password").read_text().strip())
    _, page = visitor.get(f"/workloads/{workload.id}")
    assert "allows 2 berth.dev/gpu; 1 is used, and this workload requests 2." in page
    assert pods_of(prod, "gang") == []

    # An admin of the cluster raises the quota.
    pointer = f"/spec/hard/{hard.replace('/', '~1')}"
    patch(prod.admin, f"{path}/team-a", {"op": "replace", "path": pointer, "value": "3"})
    reach("gang", "running")
    assert len(pods_of(prod, "gang")) == 2

    # A workload that ends leaves room for another one.
    submit(dave, prod, "next", 1)
    until(lambda: client.workloads.find("next").reason == "ClusterQuota")
    dave.berth("cancel", "first")
    reach("next", "running")
    dave.berth("cancel", "gang", "next")
    until(lambda: prod.objects("pods") == [])
