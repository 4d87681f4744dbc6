"""Tests for pods that move: a drained node, consolidation, and a service that scales with its load."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from berth.client import Client
from tests.contracts.kubernetes.cluster import patch
from tests.images.registry import Registry
from tests.journeys.installation import Installation, until
from tests.journeys.on_kubernetes.prod import Prod, Users, create_pool, sign_in_users

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(900)]

ENGINE = """
mkdir -p www-$BERTH_PORT/v1; cd www-$BERTH_PORT; echo ok > health
echo '{"data": [{"id": "m"}]}' > v1/models; exec httpd -f -p "$BERTH_HOST:$BERTH_PORT"
"""
# Replica 0 needs a while to stop. Replica 1 fails in the meantime, but runs on after the restart.
PEERS = """
[ ! -e failed ] || exec sleep 600
if [ "$RANK" = 0 ]; then trap ': > stopping; sleep 15; exit 1' TERM; while :; do sleep 0.2; done; fi
until [ -e stopping ]; do sleep 0.2; done; : > failed; exit 1
"""
AUTOSCALER = {
    "enabled": True, "min_engines": 1, "max_engines": 2, "scale_out_cooldown_secs": 5,
    "scale_in_cooldown_secs": 5, "metrics_interval_secs": 1, "evaluation_interval_secs": 1,
    "condition_window_secs": 5,
    "scale_out_policy": {"queue_depth_per_engine": 1, "condition_duration_secs": 3},
    "scale_in_policy": {"condition_duration_secs": 5},
}  # fmt: skip
METRICS = """\
vllm:num_requests_waiting {queued}
vllm:num_requests_running {running}
vllm:kv_cache_usage_perc {usage}
vllm:generation_tokens_total 100
"""


@pytest.fixture(scope="module")
def users(
    berth: Installation, prod: Prod, registry: Registry, tmp_path_factory: pytest.TempPathFactory
) -> Users:
    """Sign in, create a pool with 3 GPUs on node-1 and 2 on node-2, and give one project a quota of all 5."""
    users = sign_in_users(berth, registry, tmp_path_factory.mktemp("users"))
    create_pool(users.admin, prod)
    for owner, gpus in ((["ads"], 0), (["product", "--department"], 0), (["research", "--department"], 5),
                        (["vision"], 5)):  # fmt: skip
        users.admin.berth("quota", "set", *owner, "--pool", "prod", "--gpu", str(gpus))
    return users


@pytest.fixture(scope="module")
def client(users: Users) -> Iterator[Client]:
    with users.dave.client() as client:
        yield client


@pytest.fixture(autouse=True)
def _end(client: Client, prod: Prod) -> Iterator[None]:
    yield
    for workload in client.workloads.list():
        if workload.phase in ("pending", "starting", "running"):
            client.workloads.cancel(workload.id)
    until(lambda: not prod.objects("pods"), details=lambda: prod.objects("pods"))


def submit(users: Users, prod: Prod, name: str, **fields: Any) -> None:
    role = {"name": "worker", "cpu": 0.1, "memory_mib": 32, "command": ["sleep", "600"], **fields.pop("role")}
    document = {
        "name": name, "project": "vision", "pools": ["prod"], "image": prod.image, "roles": [role],
        "grace_period_seconds": 1, **fields,
    }  # fmt: skip
    users.dave.berth("submit", "-f", "-", stdin=json.dumps(document))


def cordon(prod: Prod, node: str, is_cordoned: bool = True) -> None:
    change = {"op": "add", "path": "/spec/unschedulable", "value": is_cordoned}
    patch(prod.admin, f"/api/v1/nodes/{node}", change)


def evict(prod: Prod, pod: dict[str, Any]) -> None:
    """Evict a pod as `kubectl drain` does."""
    place = {key: pod["metadata"][key] for key in ("name", "namespace")}
    path = f"/api/v1/namespaces/{place['namespace']}/pods/{place['name']}/eviction"
    prod.api.create(path, {"apiVersion": "policy/v1beta1", "kind": "Eviction", "metadata": place})


def nodes_of(prod: Prod, client: Client, name: str) -> list[str]:
    """Return the cluster nodes of a running workload's pods, or nothing if the workload is not running."""
    workload = client.workloads.find(name)
    if workload.phase != "running":
        return []
    return sorted(
        pod["spec"]["nodeName"]
        for pod in prod.objects("pods")
        if pod["metadata"]["labels"]["berth.dev/workload"] == str(workload.id)
        and not pod["metadata"].get("deletionTimestamp")
        and pod["status"]["phase"] == "Running"
    )


def test_gang_leaves_a_node_that_is_drained_in_kubernetes(users: Users, prod: Prod, client: Client) -> None:
    submit(users, prod, "train", role={"gpu": 1, "replicas": 2})
    nodes = until(lambda: nodes_of(prod, client, "train"))
    drained = nodes[0]
    other = {"node-1": "node-2", "node-2": "node-1"}[drained]
    cordon(prod, drained)
    try:
        for pod in prod.objects("pods"):
            if pod["spec"]["nodeName"] == drained:
                evict(prod, pod)
        until(lambda: nodes_of(prod, client, "train") == [other, other], details=lambda: prod.objects("pods"))
    finally:
        cordon(prod, drained, is_cordoned=False)
    workload = client.workloads.find("train")
    assert workload.restarts == 0, "an eviction does not count as a failure"
    records = client.evictions.list(workload="train", kind="cluster")
    reasons = {record.rule.partition(", ")[2] for record in records}
    assert reasons == {"the pod was deleted in Kubernetes, for example by `kubectl drain`."}


def test_gang_is_requeued_if_a_pod_fails_while_another_is_being_evicted(
    users: Users, prod: Prod, client: Client
) -> None:
    command = ["sh", "-c", PEERS]
    submit(users, prod, "peers", role={"gpu": 1, "replicas": 2, "command": command}, grace_period_seconds=30)
    until(lambda: nodes_of(prod, client, "peers"))
    first = "peers-worker-0"
    (pod,) = (
        pod for pod in prod.objects("pods") if pod["metadata"]["annotations"]["berth.dev/name"] == first
    )
    evict(prod, pod)

    def restarted() -> bool:
        workload = client.workloads.find("peers")
        assert workload.phase != "failed", workload.message
        return workload.phase == "running" and workload.run == 2

    until(restarted, details=lambda: (client.workloads.find("peers").message, prod.objects("pods")))
    assert client.workloads.find("peers").restarts == 0
    (record,) = client.evictions.list(workload="peers", kind="cluster")
    assert (record.entire_workload, record.gpus) == (True, 2)
    assert "the pod was deleted in Kubernetes, for example by `kubectl drain`" in record.rule


def test_node_change_is_noticed_before_the_pools_next_tick(users: Users, prod: Prod) -> None:
    def obstacle() -> str:
        with users.admin.client() as admin:
            nodes = list(admin.nodes.list(pool="prod"))
        (node,) = (each for each in nodes if str(each.instance_id).startswith("node-1/"))
        return node.obstacle

    def set_taints(*taints: dict[str, str]) -> None:
        change = {"op": "add", "path": "/spec/taints", "value": list(taints)}
        patch(prod.admin, "/api/v1/nodes/node-1", change)

    users.admin.berth("pool", "edit", "prod", "--set", "reconcile_tick=86400")
    cordon(prod, "node-1")
    try:
        until(lambda: obstacle() == "the node is cordoned in Kubernetes")
        cordon(prod, "node-1", is_cordoned=False)
        # The node controller of the cluster removes its taint of cordoned nodes a moment later.
        until(lambda: obstacle() == "")
        set_taints({"key": "broken", "effect": "NoSchedule"})
        until(lambda: obstacle() == "the node has the taint broken:NoSchedule")
        set_taints()
        until(lambda: obstacle() == "")
    finally:
        cordon(prod, "node-1", is_cordoned=False)
        set_taints()
        users.admin.berth("pool", "edit", "prod", "--set", "reconcile_tick=1")


def test_workload_is_moved_so_that_a_larger_workload_fits_on_its_node(
    users: Users, prod: Prod, client: Client
) -> None:
    cordon(prod, "node-2")
    try:
        submit(users, prod, "small", role={"gpu": 1})
        until(lambda: nodes_of(prod, client, "small") == ["node-1"])
    finally:
        cordon(prod, "node-2", is_cordoned=False)
    submit(users, prod, "large", role={"gpu": 3})
    until(
        lambda: nodes_of(prod, client, "large") == ["node-1"],
        details=lambda: (client.workloads.find("large").message, prod.objects("pods")),
    )
    until(lambda: nodes_of(prod, client, "small") == ["node-2"])
    assert client.workloads.find("small").restarts == 0
    (moved,) = client.evictions.list(workload="small")
    assert (moved.kind, moved.preemptor) == ("consolidate", "vision/large")


def test_autoscaled_service_adds_and_removes_an_engine(users: Users, prod: Prod, client: Client) -> None:
    submit(
        users, prod, "chat", role={"gpu": 1, "command": ["sh", "-c", ENGINE]}, kind="service",
        service={"engine": "openai", "autoscaler": AUTOSCALER},
    )  # fmt: skip

    def count(**load: float) -> int:
        """Make all engines report this load. Return the number of active engines."""
        for directory in prod.workspaces.glob("*/www-*"):
            (directory / "metrics").write_text(METRICS.format(**load))
        return [engine.status for engine in client.services.engines("chat")].count("ACTIVE")

    until(lambda: count(queued=0, running=1, usage=0.5) == 1)
    until(lambda: count(queued=20, running=4, usage=0.9) == 2, details=lambda: prod.objects("pods"))
    assert len(prod.objects("pods")) == 2
    until(lambda: count(queued=0, running=0, usage=0.0) == 1, details=lambda: prod.objects("pods"))
    until(lambda: len(prod.objects("pods")) == 1, details=lambda: prod.objects("pods"))
