"""Tests for joined machines that install their environment and report progress."""

import os
import subprocess
import sys
import tarfile
import time
from datetime import timedelta
from importlib.metadata import version
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone
from pytest_django.live_server_helper import LiveServer

from pools import services
from pools.models import Node, NodePool, ScalingEvent
from tests.api.conftest import Caller
from tests.api.pools.joining.test_joining import join, reconcile_pool, report_in
from tests.cast import Cast
from tests.pools.environments.test_local_environments import wheel
from tests.support.agents import write_agent

TOKEN = "hf_verysecrettoken"
PIP = {"phase": "pip", "state": "running", "seconds": 0, "message": ""}


@pytest.fixture
def metal_pool(cast: Cast) -> NodePool:
    return services.create_pool(
        actor=cast.alice, name="metal", nodes=(0, 3), provider="static", runtime="fake", gpus_per_node=2,
        cpu_milli=8000, memory_mib=16384, environment={"env": {"GREETING": "hello"}},
        plugins=[{"name": "huggingface", "parameters": {"token": TOKEN}}],
    )  # fmt: skip


@pytest.fixture
def secret(alice: Caller, metal_pool: NodePool) -> str:
    machine_secret = join(alice)
    reconcile_pool(metal_pool, nodes_desired=1)
    return machine_secret


def node() -> Node:
    return Node.objects.latest("pk")


def report(secret: str, digest: str, *phases: dict[str, Any], **more: Any) -> Any:
    return report_in(secret, {"booted": {"digest": digest, "phases": list(phases), **more}})


@pytest.mark.shows("PLG-08", "PLG-41")
def test_machine_installs_its_environment_before_the_node_starts(
    secret: str, metal_pool: NodePool, alice: Caller, bob: Caller
) -> None:
    instructions = report_in(secret).json()
    assert (instructions["node"], instructions["start"], node().state) == ("metal-0", "", "requested")
    assert instructions["prepare"] == alice.get("node-pools/metal/environment").json()["script"]
    assert instructions["secrets"] == {"HF_TOKEN": TOKEN}
    assert TOKEN not in instructions["prepare"]
    report(secret, instructions["digest"], PIP)
    described = alice.get("nodes/metal-0").json()
    assert (described["environment_digest"], described["phases"]) == (
        instructions["digest"],
        [{**PIP, "exit_code": None}],
    )
    done = {**PIP, "state": "done", "seconds": 7}
    answer = report(secret, instructions["digest"], done, exit_code=0).json()
    assert (answer["prepare"], answer["digest"], answer["secrets"]) == ("", "", {})
    reconcile_pool(metal_pool)
    assert (node().state, node().phases) == ("ready", [done])
    assert bob.get("nodes/metal-0").json()["phases"] == [{**done, "exit_code": None}]


def test_node_with_a_failed_installation_is_marked_lost_with_the_reason(
    secret: str, metal_pool: NodePool, alice: Caller, bob: Caller
) -> None:
    digest = report_in(secret).json()["digest"]
    failed = {"phase": "pip", "state": "failed", "seconds": 3, "message": "looking\nNo space left on device"}
    report(secret, digest, failed, exit_code=1)
    why = "environment could not be installed: pip: No space left on device"
    assert ScalingEvent.objects.get(kind="lost").reason == why
    assert node().state == "lost"
    reconcile_pool(metal_pool)
    reconcile_pool(metal_pool)
    assert Node.objects.count() == 1, "a machine that just failed does not get a new node immediately"
    last_error = f"Failed boot 1 of 5 (metal-0): {why}. Next attempt in 30 s."
    assert alice.get("node-pools/metal").json()["last_error"] == last_error
    assert bob.get("node-pools/metal").json()["last_error"] is None
    NodePool.objects.update(boot_retry_at=timezone.now())
    reconcile_pool(metal_pool)
    reconcile_pool(metal_pool)
    assert (Node.objects.count(), report_in(secret).json()["digest"]) == (2, digest)


@pytest.mark.heavy
def test_script_failure_outside_any_phase_is_reported(secret: str) -> None:
    digest = report_in(secret).json()["digest"]
    report(secret, digest, exit_code=2, output="sh: syntax error")
    assert node().phases == [
        {"phase": "script", "state": "failed", "seconds": 0, "message": "sh: syntax error\nexit code 2"}
    ]


@pytest.mark.heavy
def test_report_for_a_different_environment_is_ignored(secret: str) -> None:
    assert report(secret, "0" * 64, PIP, exit_code=0).status_code == 200
    assert (node().phases, node().prepared_at) == ([], None)


@pytest.mark.parametrize(
    ("booted", "path"),
    [
        ({"phases": []}, "booted.digest"),
        ({"digest": "a", "phases": [{"phase": "pip", "state": "begun"}]}, "booted.phases[0].state"),
        ({"digest": "a", "phases": [{**PIP, "message": "x" * 4001}]}, "booted.phases[0].message"),
        ({"digest": "a", "exit_code": 1000}, "booted.exit_code"),
    ],
)
def test_invalid_report_is_rejected(secret: str, booted: dict[str, Any], path: str) -> None:
    answer = report_in(secret, {"booted": booted})
    assert (answer.status_code, answer.json()["errors"][0]["path"]) == (422, path)


@pytest.mark.parametrize(
    ("archive", "member"),
    [("worker.tar", "pools/plugins/base.py"), ("node.tar.gz", "pools/runtimes/shim/main.py")],
)
def test_machine_can_download_the_worker_and_node_code(
    client: Any, db: None, archive: str, member: str
) -> None:
    answer = client.get(f"/api/v1/machines/{archive}")
    assert answer.status_code == 200
    with tarfile.open(fileobj=BytesIO(answer.content)) as content:
        assert content.getmember(member).size > 0


@pytest.mark.heavy
@pytest.mark.shows("PLG-08", "PLG-11", "PLG-41")
@pytest.mark.django_db(transaction=True)
def test_agent_keeps_reporting_while_the_installation_script_runs(
    live_server: LiveServer, cast: Cast, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The test runs the same program and script as a real machine.
    (tmp_path / "wheels").mkdir()
    wheel(tmp_path / "wheels", "cloudpickle", version("cloudpickle"))
    wheel(tmp_path / "wheels", "lib", "1.0")
    pool = services.create_pool(
        actor=cast.alice, name="metal", nodes=(0, 3), provider="static", runtime="fake", cpu_milli=1,
        memory_mib=1, environment={"pip": ["lib"]},
    )  # fmt: skip
    _, token = services.issue_join_token(
        actor=cast.alice, pool=pool, lifetime=timedelta(hours=1), at=timezone.now()
    )
    env = {
        **os.environ, "BERTH_URL": live_server.url, "BERTH_POOL": "metal", "BERTH_JOIN_TOKEN": token,
        "BERTH_MACHINE_STATE": str(tmp_path / "state"), "BERTH_METADATA_URL": "http://127.0.0.1:9",
        "BERTH_APT": "no", "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path / "wheels"),
        "BERTH_PYTHON": sys.executable,
    }  # fmt: skip
    command = [sys.executable, "-S", str(write_agent(tmp_path))]
    running = subprocess.Popen(command, env=env, cwd=tmp_path)
    try:
        for _ in range(1500):
            reconcile_pool(pool, nodes_desired=1)
            node_row = Node.objects.filter(pool=pool).first()
            if node_row is not None and node_row.state not in ("requested", "booting"):
                break
            time.sleep(0.2)
        assert node_row is not None
        assert (node_row.state, [phase_row["state"] for phase_row in node_row.phases]) == (
            "ready",
            ["done"] * 4,
        )
        place = tmp_path / "state" / "environments" / str(node_row.environment_id)
        code = "import lib, pools.plugins; print(lib.VERSION)"
        assert subprocess.check_output([place / "bin/python", "-c", code], text=True) == "1.0\n"
    finally:
        running.kill()
        running.wait()
