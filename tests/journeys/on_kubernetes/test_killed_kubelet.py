"""Test that a gang leaves a node whose kubelet was killed, and runs only once after the node returns."""

import json
from typing import Any

import pytest

from tests.images.registry import Registry
from tests.journeys.installation import Installation, until
from tests.journeys.on_kubernetes.kubelets import kubelet_of
from tests.journeys.on_kubernetes.prod import Prod, create_pool, sign_in_users

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(1500)]

LOST_SECONDS = 600.0  # Kubernetes reports the node after 40 s, and Berth gives it up after two more minutes
BEAT = 'while :; do hostname >> "beats-$RANK"; sleep 0.5; done'


def test_gang_moves_to_another_node_after_the_kubelet_is_killed_and_never_runs_twice(
    berth: Installation, prod: Prod, registry: Registry, tmp_path_factory: pytest.TempPathFactory
) -> None:
    users = sign_in_users(berth, registry, tmp_path_factory.mktemp("users"))
    create_pool(users.admin, prod)
    client, admin = users.dave.client(), users.admin.client()
    worker = {
        "name": "worker", "replicas": 2, "gpu": 1, "cpu": 0.1, "memory_mib": 32,
        "command": ["sh", "-c", BEAT],
    }  # fmt: skip
    document = {
        "name": "train", "project": "vision", "pools": ["prod"], "image": prod.image,
        "grace_period_seconds": 1,
        "roles": [worker],
    }  # fmt: skip
    users.dave.berth("submit", "-f", "-", stdin=json.dumps(document))

    def live_pods() -> list[dict[str, Any]]:
        return [pod for pod in prod.objects("pods") if not pod["metadata"].get("deletionTimestamp")]

    def names(pods: list[dict[str, Any]]) -> set[str]:
        return {pod["metadata"]["name"] for pod in pods}

    def is_running() -> bool:
        return client.workloads.find("train").phase == "running"

    def count_heartbeats(pods: set[str]) -> int:
        files = [path for path in prod.workspaces.glob("*/beats-*") if path.is_file()]
        return sum(line in pods for path in files for line in path.read_text().splitlines())

    until(is_running, details=lambda: client.workloads.find("train").message)
    first = live_pods()
    nodes = {pod["spec"]["nodeName"] for pod in first}
    assert len(first) == 2
    with kubelet_of(min(nodes), prod.admin) as kubelet:
        kubelet.kill()
        left = {pod["metadata"]["name"] for pod in first if pod["spec"]["nodeName"] == min(nodes)}

        # Berth marks the pods of the node as lost, and the gang runs elsewhere.
        until(lambda: not left & names(live_pods()), LOST_SECONDS)
        until(lambda: is_running() and len(live_pods()) == 2, LOST_SECONDS, details=live_pods)
        second = names(live_pods())
        assert {pod["spec"]["nodeName"] for pod in live_pods()}.isdisjoint({min(nodes)})
        workload = client.workloads.find("train")
        states = {str(pod.id): pod.state for pod in client.workloads.pods(workload.id)}
        assert {states[name] for name in left} == {"lost"}
        assert {states[name] for name in second} == {"running"}
        assert workload.restarts == 0

        # The kubelet ends the lost pods when it returns, and the others continue.
        kubelet.restart()
        until(lambda: names(prod.objects("pods")) == second, details=lambda: prod.objects("pods"))
        ended = count_heartbeats(left)
        now = count_heartbeats(second)
        until(lambda: count_heartbeats(second) > now + 4)
        assert count_heartbeats(left) == ended

    # The node serves the pool again, and nothing was started a second time.
    until(lambda: [node.state for node in admin.nodes.list(pool="prod")].count("ready") == 2, LOST_SECONDS)
    assert names(prod.objects("pods")) == second
    assert client.workloads.find("train").run == workload.run
    users.dave.berth("cancel", "train")
    until(lambda: prod.objects("pods") == [])
