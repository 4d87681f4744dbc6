"""Tests for the machine inventory and for pools with different machines."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from pools.joining.package import agent_version
from pools.models import Machine, Node, NodePool
from tests.api.conftest import Caller
from tests.api.pools.joining.test_joining import MACHINE, reconcile_pool, report_in
from tests.cast import Cast
from tests.support.agents import NO_METADATA, write_agent

INVENTORY = {
    "agent_version": "0.1.0+abc", "python": "3.9.2", "os": "Debian GNU/Linux 11", "kernel": "5.10.0-9-amd64",
    "architecture": "x86_64", "cpu_model": "EPYC 7543", "disk_mib": 102400, "disk_free_mib": 51200,
    "gpu_driver": "550.54.15", "gpus": [{"model": "L4", "memory_mib": 23034}] * 2,
}  # fmt: skip
anonymous = Caller()


def join(alice: Caller, **fields: Any) -> str:
    token = alice.post("node-pools/metal/join-tokens", {}).json()["token"]
    answer = anonymous.post("node-pools/metal/join", {**MACHINE, "token": token, **fields})
    assert answer.status_code == 200, answer.content
    return str(answer.json()["secret"])


def test_only_platform_admins_see_the_hardware_inventory(
    alice: Caller, bob: Caller, cast: Cast, client: Client, metal_pool: NodePool
) -> None:
    secret = join(alice, inventory=INVENTORY)
    shown = alice.get("node-pools/metal/machines/box-1").json()["inventory"]
    assert shown == {**INVENTORY, "agent_outdated": True, "upgrade_error": ""}
    reconcile_pool(metal_pool, nodes_desired=1)
    report_in(secret, {"inventory": {**INVENTORY, "gpu_driver": "560.28.03"}})
    for path in ("node-pools/metal/machines/box-1", "nodes/metal-0"):
        assert alice.get(path).json()["inventory"]["gpu_driver"] == "560.28.03", (
            "after an upgrade of the driver"
        )
    assert bob.get("nodes/metal-0").json()["inventory"] is None
    client.force_login(cast.alice.user)
    page = client.get("/nodes/metal-0").content.decode()
    for text in (
        "Debian GNU/Linux 11",
        "kernel 5.10.0-9-amd64",
        "560.28.03",
        "EPYC 7543",
        "0.1.0+abc",
        "3.9.2",
    ):
        assert text in page
    assert "driver 560.28.03" in client.get("/node-pools/metal/machines").content.decode()


@pytest.mark.parametrize(
    ("wrong", "path"),
    [
        ({"disk_mib": -1}, "inventory.disk_mib"),
        ({"kernel": "x" * 101}, "inventory.kernel"),
        ({"gpus": [{"model": "L4", "memory_mib": "much"}]}, "inventory.gpus[0].memory_mib"),
        ({"colour": "red"}, "inventory.colour"),
    ],
)
def test_error_names_the_invalid_inventory_field(
    alice: Caller, metal_pool: NodePool, wrong: dict[str, Any], path: str
) -> None:
    answer = report_in(join(alice), {"inventory": {**INVENTORY, **wrong}})
    assert (answer.status_code, answer.json()["errors"][0]["path"]) == (422, path)


@pytest.mark.heavy
def test_each_node_has_the_capacity_of_its_machine(alice: Caller, cast: Cast, metal_pool: NodePool) -> None:
    # The pool's node size is the minimum that a machine must provide.
    eight = [f"GPU-{letter}" for letter in "hijklmno"]
    h100 = {
        "gpu_model": "H100",
        "inventory": {**INVENTORY, "gpus": [{"model": "H100", "memory_mib": 81559}] * 8},
    }
    join(alice, inventory=INVENTORY)
    join(alice, name="box-2", cpu=64, memory_mib=524288, devices=eight, **h100)
    join(alice, name="box-3", devices=["GPU-z"])
    reconcile_pool(metal_pool, nodes_desired=3)
    columns = ("gpus", "gpu_model", "gpu_memory_mib", "cpu_milli")
    assert list(Node.objects.order_by("ordinal").values_list(*columns)) == [
        (2, "L4", 23034, 16000), (8, "H100", 81559, 64000),
    ]  # fmt: skip
    [_, large] = alice.get("nodes", pool="metal").json()["items"]
    assert (large["capacity"]["gpu"], large["free"]["gpu"], large["capacity"]["memory_mib"]) == (8, 8, 524288)
    assert Node.objects.get(gpus=8).devices == eight
    assert "1 free joined machine (0 large enough)" in alice.get("node-pools/metal/history").content.decode()


@pytest.mark.heavy
def test_machine_that_returns_with_different_hardware_gets_a_new_node(
    alice: Caller, metal_pool: NodePool
) -> None:
    identity = {"machine_id": "a" * 32}
    join(alice, **identity)
    reconcile_pool(metal_pool, nodes_desired=1)
    join(alice, devices=["GPU-a", "GPU-b", "GPU-c"], **identity)
    for _ in range(3):
        reconcile_pool(metal_pool)
    assert [(node.state, node.gpus) for node in Node.objects.order_by("pk")] == [("ended", 2), ("ready", 3)]
    assert Machine.objects.count() == 1


def test_agent_reports_gpus_driver_operating_system_and_disk(tmp_path: Path) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text(
        "#!/bin/sh\necho 'GPU-a, NVIDIA L4, 23034, 550.54.15'\necho 'GPU-b, NVIDIA GB10, [N/A], 550.54.15'\n"
    )
    tool.chmod(0o755)
    code = (
        "import json, sys; sys.path.insert(0, sys.argv[1]); "
        "from berth_agent.hardware import detect_hardware; "
        "print(json.dumps(detect_hardware('http://127.0.0.1:1', '')))"
    )
    env = {
        "PATH": f"{tmp_path}:{os.environ['PATH']}", "BERTH_MACHINE_STATE": str(tmp_path / "state"),
        "BERTH_RESERVED_MEMORY_MIB": "64", **NO_METADATA,
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-S", "-c", code, str(write_agent(tmp_path))],
        env=env,
        capture_output=True,
        check=True,
    )
    measured = json.loads(done.stdout)
    inventory = measured["inventory"]
    assert (measured["devices"], measured["gpu_model"]) == (["GPU-a", "GPU-b"], "L4")
    assert inventory["gpus"] == [{"model": "L4", "memory_mib": 23034}, {"model": "GB10", "memory_mib": 0}]
    assert (inventory["gpu_driver"], inventory["kernel"]) == ("550.54.15", os.uname().release)
    assert inventory["agent_version"] == agent_version()
    assert inventory["disk_mib"] > inventory["disk_free_mib"] > 0
    total = int(Path("/proc/meminfo").read_text().split()[1]) // 1024
    assert measured["memory_mib"] == total - 64


def test_error_names_the_invalid_reservation_variable(tmp_path: Path) -> None:
    env = {
        **os.environ, "BERTH_MACHINE_STATE": str(tmp_path / "state"), **NO_METADATA,
        "BERTH_RESERVED_CPUS": "two", "BERTH_URL": "http://127.0.0.1:1", "BERTH_POOL": "metal",
    }  # fmt: skip
    command = [sys.executable, "-S", str(write_agent(tmp_path)), "run"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=180)
    assert done.returncode == 1
    assert done.stderr == "berth-agent: BERTH_RESERVED_CPUS is 'two'. Set it to a number of at least 0.\n"
