"""Joined machines install their environment and report progress."""

import os
import subprocess
import sys
import time
from datetime import timedelta
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone
from pytest_django.live_server_helper import LiveServer

from pools import services
from pools.models import Node, NodePool, ScalingEvent
from tests.api.conftest import Caller
from tests.api.test_joining import called, joined, look
from tests.cast import Cast
from tests.pools.test_environments_here import wheel

TOKEN = "hf_verysecrettoken"
PIP = {"phase": "pip", "state": "running", "seconds": 0, "message": ""}


@pytest.fixture
def metal(cast: Cast) -> NodePool:
    return services.create_pool(
        acting=cast.alice, name="metal", nodes=(0, 3), provider="static", runtime="fake", gpus_per_node=2,
        cpu_milli=8000, memory_mib=16384, environment={"env": {"GREETING": "hello"}},
        plugins=[{"name": "huggingface", "parameters": {"token": TOKEN}}],
    )  # fmt: skip


@pytest.fixture
def secret(alice: Caller, metal: NodePool) -> str:
    """Of a machine that is to be a node by now."""
    said = joined(alice)
    look(metal, nodes_desired=1)
    return said


def node() -> Node:
    return Node.objects.latest("pk")


def tell(secret: str, digest: str, *phases: dict[str, Any], **more: Any) -> Any:
    return called(secret, {"booted": {"digest": digest, "phases": list(phases), **more}})


@pytest.mark.shows("PLG-08", "PLG-41")
def test_a_machine_is_told_what_to_install_before_what_to_run(
    secret: str, metal: NodePool, alice: Caller, bob: Caller
) -> None:
    told = called(secret).json()
    assert (told["node"], told["start"], node().state) == ("metal-0", "", "requested")
    assert told["prepare"] == alice.get("node-pools/metal/environment").json()["script"]
    assert told["secrets"] == {"HF_TOKEN": TOKEN}
    assert TOKEN not in told["prepare"]
    tell(secret, told["digest"], PIP)
    seen = alice.get("nodes/metal-0").json()
    assert (seen["environment_digest"], seen["phases"]) == (told["digest"], [{**PIP, "exit_code": None}])
    done = {**PIP, "state": "done", "seconds": 7}
    answer = tell(secret, told["digest"], done, exit_code=0).json()
    assert (answer["prepare"], answer["digest"], answer["secrets"]) == ("", "", {})
    look(metal)
    assert (node().state, node().phases) == ("ready", [done])
    assert bob.get("nodes/metal-0").json()["phases"] == [{**done, "exit_code": None}]


def test_a_machine_that_cannot_install_it_loses_its_node_with_the_reason(
    secret: str, metal: NodePool, alice: Caller, bob: Caller
) -> None:
    digest = called(secret).json()["digest"]
    failed = {"phase": "pip", "state": "failed", "seconds": 3, "message": "looking\nNo space left on device"}
    tell(secret, digest, failed, exit_code=1)
    why = "environment could not be installed: pip: No space left on device"
    assert ScalingEvent.objects.get(kind="lost").reason == why
    assert node().state == "lost"
    look(metal)
    look(metal)
    assert Node.objects.count() == 1, "a machine that just failed is not asked again at once"
    failed = f"Failed boot 1 of 5 (metal-0): {why}. Next attempt in 30 s."
    assert alice.get("node-pools/metal").json()["last_error"] == failed
    assert bob.get("node-pools/metal").json()["last_error"] is None
    NodePool.objects.update(boot_retry_at=timezone.now())
    look(metal)
    look(metal)
    assert (Node.objects.count(), called(secret).json()["digest"]) == (2, digest)


def test_a_script_that_fails_outside_of_its_phases_is_told_too(secret: str) -> None:
    digest = called(secret).json()["digest"]
    tell(secret, digest, exit_code=2, output="sh: syntax error")
    assert node().phases == [
        {"phase": "script", "state": "failed", "seconds": 0, "message": "sh: syntax error\nexit code 2"}
    ]


def test_what_is_told_of_another_environment_is_not_noted(secret: str) -> None:
    assert tell(secret, "0" * 64, PIP, exit_code=0).status_code == 200
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
def test_what_makes_no_sense_is_refused(secret: str, booted: dict[str, Any], path: str) -> None:
    told = called(secret, {"booted": booted})
    assert (told.status_code, told.json()["errors"][0]["path"]) == (422, path)


def test_berths_own_code_for_workers_is_there_for_machines(client: Any, db: None) -> None:
    told = client.get("/api/v1/machines/worker.tar")
    assert told.status_code == 200
    assert b"pools/plugins/base.py" in told.content


@pytest.mark.heavy
@pytest.mark.shows("PLG-08", "PLG-11", "PLG-41")
@pytest.mark.django_db(transaction=True)
def test_the_program_runs_the_script_beside_its_calls(
    live_server: LiveServer, cast: Cast, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The very file and the very script that machines run, against the server."""
    (tmp_path / "wheels").mkdir()
    wheel(tmp_path / "wheels", "cloudpickle", version("cloudpickle"))
    wheel(tmp_path / "wheels", "lib", "1.0")
    pool = services.create_pool(
        acting=cast.alice, name="metal", nodes=(0, 3), provider="static", runtime="fake", cpu_milli=1,
        memory_mib=1, environment={"pip": ["lib"]},
    )  # fmt: skip
    _, token = services.issue_join_token(
        acting=cast.alice, pool=pool, lasts=timedelta(hours=1), at=timezone.now()
    )
    env = {
        **os.environ, "BERTH_URL": live_server.url, "BERTH_POOL": "metal", "BERTH_JOIN_TOKEN": token,
        "BERTH_MACHINE_STATE": str(tmp_path / "state"), "BERTH_METADATA_URL": "http://127.0.0.1:9",
        "BERTH_APT": "no", "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path / "wheels"),
        "BERTH_PYTHON": sys.executable,
    }  # fmt: skip
    program = Path(__file__).parents[2] / "pools/joining/program.py"
    running = subprocess.Popen([sys.executable, "-S", str(program)], env=env, cwd=tmp_path)
    try:
        for _ in range(600):
            look(pool, nodes_desired=1)
            found = Node.objects.filter(pool=pool).first()
            if found is not None and found.state not in ("requested", "booting"):
                break
            time.sleep(0.2)
        assert found is not None
        assert (found.state, [each["state"] for each in found.phases]) == ("ready", ["done"] * 4)
        place = tmp_path / "state" / "environments" / str(found.environment_id)
        code = "import lib, pools.plugins; print(lib.VERSION)"
        assert subprocess.check_output([place / "bin/python", "-c", code], text=True) == "1.0\n"
    finally:
        running.kill()
        running.wait()
