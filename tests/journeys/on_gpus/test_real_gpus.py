"""Tests for workloads on the real GPUs of this machine. Skipped on machines without NVIDIA GPUs."""

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from berth.client import Client
from pools.runtimes.enclosure.devices import nvidia_gpus
from tests.journeys.command import Terminal, sign_in
from tests.journeys.installation import ROOT, Installation, until
from tests.support.agents import start_agent

GPUS = len(nvidia_gpus())
ENDED = ("cancelled", "completed", "failed")
PROGRAM = str(ROOT / "tests" / "journeys" / "on_gpus" / "use_gpu.py")
pytestmark = [
    pytest.mark.heavy,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not GPUS, reason="this machine has no NVIDIA GPU"),
]


@pytest.fixture(scope="module")
def demo(pod_paths: dict[str, str]) -> Iterator[Installation]:
    """Run the demo organization on this machine with its real GPUs."""
    with tempfile.TemporaryDirectory(prefix="berth-gpus-") as place:
        installation = Installation(Path(place) / "home", settings=pod_paths | {"BERTH_DECLARED_GPUS": "0"})
        try:
            installation.start("--demo")
            yield installation
        finally:
            installation.clear()


@pytest.fixture(scope="module")
def admin(demo: Installation, tmp_path_factory: pytest.TempPathFactory) -> Terminal:
    return sign_in(demo, "admin", tmp_path_factory.mktemp("configuration") / "admin")


@pytest.fixture
def client(admin: Terminal) -> Iterator[Client]:
    """Return the admin's client. Cancel every workload at the end to free the GPUs."""
    with admin.client() as client:
        yield client
        for workload in client.workloads.list():
            if workload.phase not in ENDED:
                client.workloads.cancel(workload.id)
                until_phase(client, workload, *ENDED)


def submit(client: Client, name: str, *words: str, **role: Any) -> Any:
    return client.workloads.submit(
        {
            "name": name,
            "project": "vision",
            "command": [sys.executable, PROGRAM, *words],
            "priority": role.pop("priority", 50),
            "pools": [role.pop("pool", "local")],
            "roles": [{"replicas": 1, "cpu": 1, "memory_mib": 2048, **role}],
        }
    )


def until_phase(client: Client, workload: Any, *phases: str) -> Any:
    until(
        lambda: client.workloads.get(workload.id).phase in phases,
        details=lambda: client.workloads.get(workload.id),
    )
    return client.workloads.get(workload.id)


def log(admin: Terminal, name: str) -> str:
    return admin.berth("logs", f"vision/{name}")


def test_demo_pool_has_the_gpus_of_this_machine(client: Client) -> None:
    pool = client.node_pools.get("local")
    assert pool.gpus_per_node * (pool.nodes_max or 0) == GPUS
    assert pool.gpu_model
    assert pool.gpu_memory_mib > 1024


def test_pod_sees_only_its_own_gpu_and_a_pod_without_gpus_sees_none(client: Client, admin: Terminal) -> None:
    with_one = submit(client, "with-one", "1", "busy", gpu=1)
    assert until_phase(client, with_one, *ENDED).phase == "completed", log(admin, "with-one")
    assert "GPUs 1\n" in log(admin, "with-one")
    assert len(log(admin, "with-one").split("\n")[0].split()) == 3, "one device file"
    without = submit(client, "without", "1", "busy", gpu=0)
    assert until_phase(client, without, *ENDED).phase == "failed"
    assert "device files\n" in log(admin, "without")
    assert "GPUs" not in log(admin, "without")


def test_two_pods_with_gpu_memory_requests_share_a_gpu(client: Client, admin: Terminal) -> None:
    pods = [submit(client, f"share-{n}", "60", "idle", gpu_memory_mib=4096) for n in range(2)]
    for pod in pods:
        until_phase(client, pod, "running")
    devices = {client.workloads.pods(pod.id)[0].devices[0] for pod in pods}
    assert len(devices) == 1, "both fit on one GPU"
    until(lambda: all("first step 0" in log(admin, pod.name) for pod in pods))


def test_preempted_workload_continues_from_its_checkpoint(client: Client, admin: Terminal) -> None:
    low = submit(client, "low", "20", "busy", gpu=GPUS, priority=20)
    until_phase(client, low, "running")
    until(lambda: "first step 0" in log(admin, "low"))
    high = submit(client, "high", "2", "busy", gpu=GPUS, priority=90)
    assert until_phase(client, high, *ENDED).phase == "completed", log(admin, "high")
    assert "vision/low" in admin.berth("evictions")
    until(lambda: client.workloads.get(low.id).run == 2)
    until(lambda: "first step" in log(admin, "low"))
    assert int(log(admin, "low").partition("first step ")[2].split()[0]) > 0


def test_utilization_is_measured_and_an_idle_workload_is_suspended(client: Client, admin: Terminal) -> None:
    busy = submit(client, "busy", "120", "busy", gpu=GPUS)
    until_phase(client, busy, "running")
    until(lambda: (client.utilization.cluster().now.used.gpu or 0) > GPUS / 2)
    assert (client.utilization.cluster().now.used.gpu_memory_mib or 0) >= 1024
    client.workloads.cancel(busy.id)
    rule = "below=5%,after=1m,action=suspend,grace=1m,warmup=0s"
    admin.berth("pool", "edit", "local", "--idle-rule", rule)
    idle = submit(client, "idle", "3600", "idle", gpu=GPUS)
    until_phase(client, idle, "suspended")
    assert "idle" in admin.berth("describe", "vision/idle")


def test_joined_machine_reports_its_gpus(
    client: Client, admin: Terminal, demo: Installation, tmp_path: Path
) -> None:
    # The pods of joined machines need Ray and are covered by other tests.
    admin.berth("pool", "create", "metal", "--provider", "static", "--nodes", "0:1")
    token = admin.json("machine", "token", "issue", "metal", "--expires", "1h")["token"]
    agent = start_agent(f"http://127.0.0.1:{demo.port}", tmp_path / "machine", token, BERTH_PLAIN_HTTP="1")
    try:
        until(lambda: list(client.node_pools.machines("metal")))
        until(lambda: next(iter(client.node_pools.machines("metal"))).inventory)
        (machine,) = client.node_pools.machines("metal")
        local = client.node_pools.get("local")
        assert (machine.gpus, machine.gpu_model) == (GPUS, local.gpu_model)
        assert machine.inventory is not None
        assert machine.inventory.gpu_driver
        assert [gpu.memory_mib for gpu in machine.inventory.gpus] == [local.gpu_memory_mib] * GPUS
    finally:
        agent.terminate()
        agent.wait()
