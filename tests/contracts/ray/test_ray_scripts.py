"""Tests for the scripts that add and remove machines of a Ray cluster."""

import io
import os
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from pools.runtimes.base import PodCause, PodState, RuntimeFailure
from pools.runtimes.ray import scripts
from pools.runtimes.ray.cluster import GCS_PORT, RayNode
from pools.runtimes.ray.runtime import RayRuntime
from pools.runtimes.ray.scripts import CHECK, STOP, node_code, start_script
from pools.runtimes.shim.processes import descendants, start_time
from tests.contracts.pods import ended, order, poll_until, running
from tests.journeys.installation import until

HEAD = RayNode("machine/7", "metal", 0, "127.99.1.1", ("GPU-a", "GPU-b"), "5ec2e7" * 10)
EXTERNAL_CAUSES = (PodCause.LOST, PodCause.HOST_STOPPED, PodCause.STOPPED)
WORKER = RayNode("machine/8", "metal", 1, "127.99.1.2", (), "5ec2e7" * 10)
SLOW = {"BERTH_NODE_START_SECONDS": "540"}  # Ray starts slowly on a busy machine


def test_node_code_needs_only_the_standard_library(tmp_path: Path) -> None:
    with tarfile.open(fileobj=io.BytesIO(node_code())) as tar:
        tar.extractall(tmp_path, filter="data")
    code = "import sys; sys.path.insert(0, sys.argv[1]); import pools.runtimes.ray.node.main as m; print(m)"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert str(tmp_path) in done.stdout


def test_start_script_contains_the_pools_head_address(tmp_path: Path) -> None:
    nodes = [HEAD, WORKER]
    instructions = RayRuntime(tmp_path, lambda: nodes).instructions(WORKER)
    assert f'"head": "127.99.1.1:{GCS_PORT}", "is_head": false' in instructions.start
    assert instructions.start == start_script(WORKER, HEAD), (
        "the script is stable, because a machine runs a changed script again"
    )
    for script in (instructions.start, instructions.stop):
        assert subprocess.run(["sh", "-n"], input=script, text=True, check=False).returncode == 0


def test_worker_without_a_head_node_has_no_start_script(tmp_path: Path) -> None:
    assert RayRuntime(tmp_path, lambda: [WORKER]).instructions(WORKER).start == ""


@pytest.mark.parametrize("is_reused", [False, True])
def test_node_supervisor_exits_when_its_job_ends_even_if_the_process_id_is_reused(
    tmp_path: Path, is_reused: bool
) -> None:
    script = start_script(WORKER, HEAD)
    code = script.partition("setsid sh -c '")[2].partition("'")[0]
    began = start_time(os.getpid())
    anchor = f"{os.getpid()}:{int(began) - 1 if is_reused else began}"
    node = tmp_path / "node"
    node.write_text(f"#!/bin/sh\necho started >> {tmp_path}/starts\n")
    node.chmod(0o755)
    supervisor = subprocess.Popen(
        ["sh", "-c", code, str(node), "node.json"], env={**os.environ, "BERTH_ANCHOR": anchor}
    )
    try:
        if is_reused:
            assert supervisor.wait(60) == 0
        else:
            poll_until((tmp_path / "starts").exists, bool)
            assert supervisor.poll() is None
    finally:
        supervisor.kill()
        supervisor.wait()
    assert (tmp_path / "starts").exists() is not is_reused


@pytest.mark.heavy
@pytest.mark.timeout(900)
def test_machine_runs_pods_between_its_start_and_stop_scripts(tmp_path: Path) -> None:
    served = tmp_path / "api/v1/machines"
    served.mkdir(parents=True)
    (served / "node.tar.gz").write_bytes(node_code())
    env = {
        **os.environ, "BERTH_URL": f"file://{tmp_path}", "BERTH_NODE_PYTHON": sys.executable,
        "BERTH_MACHINE_STATE": str(tmp_path / "state"), "PYTHONPATH": "", **SLOW,
    }  # fmt: skip
    runtime = RayRuntime(tmp_path / "berth", lambda: [HEAD])
    instructions = runtime.instructions(HEAD)
    try:
        for _ in range(2):  # the script may run again
            subprocess.run(["sh", "-c", instructions.start], env=env, check=True)
        pod = order("p-1", "sh", "-c", "pwd; exit 3", instance_id="machine/7")
        _retry(lambda: runtime.start(pod))
        assert ended(runtime, "p-1").exit_code == 3
        assert runtime.read_log("p-1", 0, 500).data.decode().startswith(str(tmp_path / "state/ray/node/pods"))
    finally:
        subprocess.run(["sh", "-c", STOP], env=env, check=True)
    assert not (tmp_path / "state/ray/node/secret").exists()
    remaining = [
        path for path in Path("/proc").glob("[0-9]*/cmdline") if str(tmp_path).encode() in _read(path)
    ]
    assert remaining == []


@pytest.mark.heavy
@pytest.mark.timeout(900)
def test_node_is_upgraded_while_its_pods_continue_to_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = tmp_path / "api/v1/machines"
    served.mkdir(parents=True)
    (served / "node.tar.gz").write_bytes(node_code())
    env = {
        **os.environ, "BERTH_URL": f"file://{tmp_path}", "BERTH_NODE_PYTHON": sys.executable,
        "BERTH_MACHINE_STATE": str(tmp_path / "state"), "PYTHONPATH": "",
    }  # fmt: skip
    runtime = RayRuntime(tmp_path / "berth", lambda: [HEAD])
    instructions = runtime.instructions(HEAD)
    place = tmp_path / "state/ray"
    try:
        subprocess.run(["sh", "-c", instructions.start], env=env, check=True)
        assert subprocess.run(["sh", "-c", instructions.check], env=env, check=False).returncode == 0
        pod = order(
            "p-1", "sh", "-c", "while [ ! -e end ]; do sleep 0.1; done; exit 3", instance_id="machine/7"
        )
        _retry(lambda: runtime.start(pod))
        running(runtime, "p-1")
        before = (place / "code").readlink(), (place / "node/main.pid").read_text()
        other_code = _other_code()
        (served / "node.tar.gz").write_bytes(other_code)
        monkeypatch.setattr(scripts, "node_code", lambda: other_code)
        subprocess.run(["sh", "-c", runtime.instructions(HEAD).upgrade], env=env, check=True)
        assert ((place / "code").readlink() == before[0], (place / "node/main.pid").read_text()) == (
            False,
            before[1],
        )
        main = Path(f"/proc/{before[1]}")
        assert f"PYTHONPATH={place}/code" in (main / "environ").read_text()
        assert runtime.get_reports(["p-1"])["p-1"].state is PodState.RUNNING
        (place / "node/pods/p-1/work/end").touch()
        assert ended(runtime, "p-1").exit_code == 3
        _retry(lambda: runtime.start(order("p-2", "echo", "new", instance_id="machine/7")))
        assert ended(runtime, "p-2").exit_code == 0, "Ray and the agent still work together"
        (served / "node.tar.gz").write_bytes(b"damaged")
        assert subprocess.run(["sh", "-c", instructions.upgrade], env=env, check=False).returncode != 0
        assert subprocess.run(["sh", "-c", instructions.check], env=env, check=False).returncode == 0
    finally:
        subprocess.run(["sh", "-c", STOP], env=env, check=True)
    remaining = [
        path for path in Path("/proc").glob("[0-9]*/cmdline") if str(tmp_path).encode() in _read(path)
    ]
    assert remaining == []


def test_upgrade_rejects_code_with_a_wrong_checksum(tmp_path: Path) -> None:
    served, place = tmp_path / "api/v1/machines", tmp_path / "state/ray"
    served.mkdir(parents=True)
    place.mkdir(parents=True)
    (place / "pid").write_text("1")
    env = {
        **os.environ, "BERTH_URL": f"file://{tmp_path}", "BERTH_NODE_PYTHON": "false",
        "BERTH_MACHINE_STATE": str(tmp_path / "state"),
    }  # fmt: skip
    for code, error, unpacked in (
        (_other_code(), "The downloaded node code has the wrong checksum.\n", 0),
        (node_code(), "", 1),
    ):
        (served / "node.tar.gz").write_bytes(code)
        done = subprocess.run(
            ["sh", "-c", scripts.upgrade_script()], env=env, capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stderr) == (1, error)
        assert len(list(place.glob("code-*"))) == unpacked
    assert not (place / "code").exists(), "code that cannot be imported is not used"


def _other_code() -> bytes:
    buffer = io.BytesIO()
    with (
        tarfile.open(fileobj=buffer, mode="w:gz") as target,
        tarfile.open(fileobj=io.BytesIO(node_code())) as source,
    ):
        for member in source:
            target.addfile(member, source.extractfile(member))
        target.addfile(tarfile.TarInfo("pools/version.txt"))
    return buffer.getvalue()


@pytest.mark.heavy
@pytest.mark.timeout(900)
def test_cluster_recovers_after_its_head_is_killed(tmp_path: Path) -> None:
    # The machine restarts its Ray head at the same address. Only the pods of that machine are lost.
    served = tmp_path / "api/v1/machines"
    served.mkdir(parents=True)
    (served / "node.tar.gz").write_bytes(node_code())
    nodes = [HEAD, WORKER]
    runtime = RayRuntime(tmp_path / "berth", lambda: nodes)
    env = {**os.environ, "BERTH_URL": f"file://{tmp_path}", "BERTH_NODE_PYTHON": sys.executable, **SLOW}
    places = {node: {**env, "BERTH_MACHINE_STATE": str(tmp_path / f"m{node.ordinal}")} for node in nodes}
    names = {node: f"p-{node.ordinal}" for node in nodes}
    try:
        for node in nodes:
            subprocess.run(["sh", "-c", runtime.instructions(node).start], env=places[node], check=True)
        for node in nodes:
            pod = order(names[node], "sleep", "600", instance_id=node.instance_id)
            _retry(partial(runtime.start, pod))
        for node in nodes:
            running(runtime, names[node])
        loop = int((tmp_path / "m0/ray/pid").read_text())
        [head] = [pid for pid in descendants(loop) if "ray.node.main" in _command(pid)]
        os.kill(head, signal.SIGKILL)
        # STOPPED: the node stopped its pods and had returned before Berth checked.
        assert ended(runtime, names[HEAD]).cause in EXTERNAL_CAUSES
        for node in nodes:
            pod = order(f"{names[node]}-again", "echo", "back", instance_id=node.instance_id)
            _retry(partial(runtime.start, pod))
            until(partial(_has_ended, runtime, pod.pod_id))
            assert ended(runtime, pod.pod_id).exit_code == 0
            assert runtime.read_log(pod.pod_id, 0, 100).data == b"back\n"
        assert runtime.get_reports([names[WORKER]])[names[WORKER]].state is PodState.RUNNING
    finally:
        for node in nodes:
            subprocess.run(["sh", "-c", STOP], env=places[node], check=True)
    remaining = [
        path for path in Path("/proc").glob("[0-9]*/cmdline") if str(tmp_path).encode() in _read(path)
    ]
    assert remaining == []


def test_node_with_a_killed_main_loop_is_stopped(tmp_path: Path) -> None:
    place = tmp_path / "ray"
    (place / "node").mkdir(parents=True)
    program = "import time; time.sleep(1000)"
    node = subprocess.Popen([sys.executable, "-c", program, str(place / "node.json")])
    loop = subprocess.Popen(["sh", "-c", "exit 0"])
    loop.wait()
    (place / "pid").write_text(f"{loop.pid}\n")
    (place / "node/main.pid").write_text(str(node.pid))
    env = {**os.environ, "BERTH_MACHINE_STATE": str(tmp_path)}
    assert subprocess.run(["sh", "-c", CHECK], env=env, check=False).returncode == 0
    subprocess.run(["sh", "-c", STOP], env=env, check=True)
    assert node.wait(60) == -signal.SIGTERM
    stopped = subprocess.run(["sh", "-c", CHECK], env=env, check=False, capture_output=True)
    assert (stopped.returncode, stopped.stderr) == (1, b"")


def _command(pid: int) -> str:
    return _read(Path(f"/proc/{pid}/cmdline")).replace(b"\0", b" ").decode()


def _has_ended(runtime: RayRuntime, pod_id: str) -> bool:
    return runtime.get_reports([pod_id])[pod_id].state is PodState.EXITED


def _retry(attempt: Callable[[], None]) -> None:
    deadline = time.monotonic() + 240
    while True:
        try:
            return attempt()
        except RuntimeFailure:
            assert time.monotonic() < deadline
            time.sleep(0.5)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
