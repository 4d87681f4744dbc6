"""Contract tests for the Ray runtime on a real cluster."""

import contextlib
import inspect
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import grpc
import httpx
import pytest

from pools.runtimes.base import PodCause, PodReport, PodState, RuntimeFailure, VolumeMount
from pools.runtimes.files.base import FilesNotFound
from pools.runtimes.ray.cluster import AGENT_PORT, JOBS_PORT
from pools.runtimes.ray.runtime import RayRuntime
from pools.runtimes.shim.processes import process_ids
from tests.contracts import test_runtime as contract
from tests.contracts.pods import (
    LEAVES_FILES,
    RayStage,
    alive,
    claim_files_of_an_ended_pod_are_read_without_links,
    ended,
    order,
    poll_until,
    running,
)
from tests.contracts.ray.cluster import RayCluster
from tests.images.registry import missing_programs, running_registry
from tests.volumes.object_store import SigningServer, object_store

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(300)]  # the first test waits for the cluster
GRPC_METHODS = (
    "/ray.rpc.NodeInfoGcsService/GetAllNodeInfo",
    "/ray.rpc.NodeManagerService/GetNodeStats",
    "/ray.rpc.ObjectManagerService/Pull",
    "/ray.rpc.ReporterService/GetTraceback",
)
SERVER_PROGRAM = """
import json, os, signal, sys
from pathlib import Path
from pools.runtimes.ray.cluster import RayNode
from pools.runtimes.ray.runtime import RayRuntime
from tests.contracts import test_runtime as contract
from tests.contracts.pods import order
nodes = [RayNode(**{**node, "devices": tuple(node["devices"])}) for node in json.loads(sys.argv[2])]
runtime = RayRuntime(Path(sys.argv[1]), lambda: nodes, prefix=sys.argv[3])
runtime.start(order("p-1", "sh", "-c", "echo one; sleep 600"))
os.kill(os.getpid(), signal.SIGKILL)
"""


# All contract tests run in this file, because the tests in one file share a process and its cluster.
globals().update(
    {
        name: claim
        for name, claim in vars(contract).items()
        if name.startswith("test_") and "stage" in inspect.signature(claim).parameters
    }
)


@pytest.fixture
def stage(cluster: RayCluster, tmp_path: Path) -> Iterator[RayStage]:
    stage = RayStage(cluster, tmp_path / "runtime")
    yield stage
    stage.sweep()


def test_pod_runs_on_its_node_with_the_assigned_devices(stage: RayStage) -> None:
    command = ("sh", "-c", "echo $CUDA_VISIBLE_DEVICES $BERTH_POD_DIR")
    stage.runtime.start(order("p-1", *command, instance_id="i-1", devices=("GPU-d",)))
    stage.runtime.start(order("p-2", *command, instance_id="i-0", devices=("GPU-a", "GPU-b")))
    for pod_id, node, devices in (("p-1", "i-1", "GPU-d"), ("p-2", "i-0", "GPU-a,GPU-b")):
        assert ended(stage.runtime, pod_id).exit_code == 0
        output = stage.runtime.read_log(pod_id, 0, 1000).data.decode()
        assert output == f"{devices} {stage.cluster.home(node)}/pods/{pod_id}/work\n"


def test_files_of_an_ended_pod_are_read_from_its_node(stage: RayStage) -> None:
    pod = order("p-1", *LEAVES_FILES, instance_id="i-1", secret_files={"key": "hidden"})
    claim_files_of_an_ended_pod_are_read_without_links(stage.runtime, pod)


def test_volume_changes_of_an_ended_pod_are_read_from_its_node(stage: RayStage) -> None:
    if not stage.runtime.get_isolation(["i-1"])["i-1"].encloses:
        pytest.skip("this machine cannot isolate pods")
    with object_store() as store:
        store.fill("results", {"set/old": b"old", "set/kept": b"kept"})
        server = SigningServer(store.volume("s3://results/set", access="read_write"))
        mount = VolumeMount("data", "s3://results/set", "/data", is_writable=True, cache=server.volume.cache)
        script = "cd /data && echo new > new && rm old"
        stage.runtime.start(server.order("p-1", script, instance_id="i-1", volumes=(mount,)))
        assert ended(stage.runtime, "p-1").exit_code == 0
        server.close()
    changes = stage.runtime.list_volume_changes("p-1", "data")
    assert [(file.path, file.size) for file in changes.files] == [("new", 4)]
    assert [path for path, _ in changes.deleted] == ["old"]
    assert stage.runtime.read_volume_file("p-1", "data", "new", 1, 9) == b"ew\n"
    with pytest.raises(FilesNotFound):
        stage.runtime.read_volume_file("p-1", "data", "../data.copied", 0, 9)


def test_node_is_ready_after_a_probe_pod_has_run_on_all_its_devices(stage: RayStage) -> None:
    blocked = stage.cluster.home("i-1") / "workspaces/probe"
    blocked.write_text("in the way")
    poll_until(
        lambda: stage.runtime.unready_reasons(["i-0", "i-1"]),
        lambda reasons: "i-0" not in reasons and "File exists" in reasons.get("i-1", ""),
    )
    blocked.unlink()
    poll_until(lambda: stage.runtime.unready_reasons(["i-0", "i-1"]), lambda reasons: reasons == {})
    assert not [pod_id for pod_id in stage.runtime.list_pods() if pod_id.startswith("probe")]
    assert not blocked.exists()


def test_pod_runs_in_a_container_image_on_its_node(stage: RayStage, tmp_path: Path) -> None:
    isolation = stage.runtime.get_isolation(["i-0"])["i-0"]
    if missing := [*missing_programs(), *([] if isolation.images else ["a container"])]:
        pytest.skip(f"not on this machine: {', '.join(missing)}. {isolation.images_obstacle}")
    with running_registry(tmp_path / "registry") as registry:
        image = registry.push("team/busybox", Env=["PATH=/bin", "COLOR=blue"])
        pod = order("p-1", "sh", "-c", "echo $COLOR; exit 5", image=image, registry_auth=registry.auth)
        stage.runtime.start(pod)
        assert ended(stage.runtime, "p-1").exit_code == 5
    assert stage.runtime.read_log("p-1", 0, 100).data == b"blue\n"


def test_ray_does_not_oversubscribe_a_device(stage: RayStage) -> None:
    half = {"devices": ("GPU-a",), "device_milli": 500}
    for pod_id in ("p-1", "p-2", "p-3"):
        stage.runtime.start(order(pod_id, "sh", "-c", stage.SHELL, **half))
    states = poll_until(
        lambda: {i: report.state for i, report in stage.runtime.get_reports(("p-1", "p-2", "p-3")).items()},
        lambda states: list(states.values()).count(PodState.RUNNING) == 2,
    )
    (pending,) = (pod_id for pod_id, state in states.items() if state is PodState.STARTING)
    stage.end_pod(next(pod_id for pod_id in states if pod_id != pending), 0)
    running(stage.runtime, pending)


def test_unresponsive_agents_and_unregistered_raylets_prevent_readiness(
    stage: RayStage, tmp_path: Path
) -> None:
    at = stage.cluster.at
    silent = replace(at["i-0"], instance_id="i-8", address=at["i-0"].address.rpartition(".")[0] + ".250")
    unregistered = replace(at["i-1"], instance_id="i-9")
    runtime = RayRuntime(tmp_path / "other", lambda: [*at.values(), silent, unregistered])
    reasons = poll_until(
        lambda: runtime.unready_reasons(["i-head", "i-0", "i-1", "i-8", "i-9", "i-10"]),
        lambda reasons: list(reasons) == ["i-8", "i-9", "i-10"],
    )
    assert f"the node at http://{silent.address}:{AGENT_PORT} is not responding" in reasons["i-8"]
    assert reasons["i-9"] == "raylet is not registered at the head node"
    assert reasons["i-10"] == "the machine's address is not known yet"


def test_stopping_a_pod_can_be_retried_once_its_node_is_reachable(stage: RayStage, tmp_path: Path) -> None:
    stage.runtime.start(stage.long("p-1"))
    running(stage.runtime, "p-1")
    at = stage.cluster.at
    unreachable = replace(at["i-0"], address=at["i-0"].address.rpartition(".")[0] + ".250")
    cut_off = RayRuntime(stage.berth, lambda: [at["i-head"], unreachable])
    with pytest.raises(RuntimeFailure, match="is not responding"):
        cut_off.stop("p-1", 0)
    assert stage.runtime.get_reports(["p-1"])["p-1"].state is PodState.RUNNING
    stage.runtime.stop("p-1", 0)
    assert ended(stage.runtime, "p-1").cause is PodCause.STOPPED


def test_secrets_are_passed_to_a_pod_but_appear_in_neither_records_nor_logs(stage: RayStage) -> None:
    secrets = {"secret_env": {"PASSWORD": "swordfish-1"}, "secret_files": {"key": "swordfish-2"}}
    script = 'test "$PASSWORD" = swordfish-1 && grep -q swordfish-2 "$BERTH_SECRETS_DIR/key"'
    stage.runtime.start(order("p-1", "sh", "-c", script.replace("swordfish-", 'sword""fish-'), **secrets))
    assert ended(stage.runtime, "p-1").exit_code == 0
    places = (stage.cluster.root, stage.berth)
    files = [path for place in places for path in place.rglob("*") if path.is_file()]
    assert [path for path in files if b"swordfish-" in path.read_bytes()] == []


def test_jobs_and_agents_require_the_cluster_secret(cluster: RayCluster) -> None:
    head, node = cluster.at["i-head"], cluster.at["i-0"]
    jobs, agent = f"http://{head.address}:{JOBS_PORT}/api/jobs/", f"http://{node.address}:{AGENT_PORT}/known"
    for headers in ({}, {"Authorization": "Bearer wrong"}):
        for method, url in (("GET", jobs), ("POST", jobs), ("POST", agent)):
            answer = httpx.request(method, url, headers=headers, json={}, trust_env=False)
            assert answer.status_code in (401, 403), (method, url, answer.text)


def test_http_ports_bound_to_all_addresses_require_the_cluster_secret(cluster: RayCluster) -> None:
    open_ports = cluster.ports_on_all_addresses()
    assert open_ports, "raylets and the head's store listen on all addresses"
    for port in open_ports:
        with contextlib.suppress(httpx.TransportError):  # these ports speak gRPC
            answer = httpx.get(f"http://127.0.0.1:{port}/metrics", timeout=2, trust_env=False)
            assert answer.status_code in (401, 403), (port, answer.text[:200])


def test_grpc_services_require_the_cluster_secret_on_every_port(cluster: RayCluster) -> None:
    # The GCS server, the raylets and their agents listen on all addresses.
    rejections = dict.fromkeys(GRPC_METHODS, 0)
    for port in cluster.ports_on_all_addresses():
        for call in GRPC_METHODS:
            with (
                grpc.insecure_channel(f"127.0.0.1:{port}") as channel,
                pytest.raises(grpc.RpcError) as raised,
            ):
                channel.unary_unary(call)(b"", timeout=10)
            code = raised.value.code()
            assert code in (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.UNIMPLEMENTED), (port, call)
            rejections[call] += code is grpc.StatusCode.UNAUTHENTICATED
    nodes = len(cluster.at)
    assert rejections == dict(zip(GRPC_METHODS, (1, nodes, nodes, nodes), strict=True))


def test_pods_survive_a_killed_server_and_are_recovered(stage: RayStage, tmp_path: Path) -> None:
    fields = ("instance_id", "pool", "ordinal", "address", "devices", "secret")
    nodes = [{name: getattr(node, name) for name in fields} for node in stage.cluster.at.values()]
    prefix = f"{tmp_path.name}-"
    command = [sys.executable, "-c", SERVER_PROGRAM, str(stage.berth), json.dumps(nodes), prefix]
    killed = subprocess.run(command, check=False)
    assert killed.returncode == -signal.SIGKILL
    stage.restart()
    stage.runtime.poll_reports()  # the watcher does the same, and may start before the nodes are set
    report = running(stage.runtime, "p-1")
    stage.runtime.start(order("p-1", "sh", "-c", "echo two"))
    assert stage.runtime.get_reports(["p-1"])["p-1"] == report
    elsewhere = RayRuntime(tmp_path / "elsewhere", lambda: list(stage.cluster.at.values()), prefix)
    assert elsewhere.list_pods() == ("p-1",)
    assert running(elsewhere, "p-1") == report
    elsewhere.stop("p-1", 60)
    assert ended(stage.runtime, "p-1").cause is PodCause.STOPPED
    assert stage.runtime.read_log("p-1", 0, 100).data == b"one\n"


def test_log_of_an_ended_pod_is_copied_before_its_node_leaves(stage: RayStage) -> None:
    stage.runtime.wake_fds()
    stage.runtime.start(order("p-1", "echo", "kept"))
    ended(stage.runtime, "p-1")
    poll_until(stage.runtime.ledger.log_path("p-1").exists)
    without = RayRuntime(stage.berth, list)
    assert without.get_reports(["p-1"])["p-1"].exit_code == 0
    assert without.read_log("p-1", 0, 100).data == b"kept\n"


def test_pods_of_a_removed_node_are_lost(stage: RayStage) -> None:
    stage.runtime.start(stage.long("p-1"))
    running(stage.runtime, "p-1")
    without = RayRuntime(stage.berth, lambda: [stage.cluster.at["i-head"]])
    report = without.get_reports(["p-1"])["p-1"]
    assert (report.state, report.cause) == (PodState.EXITED, PodCause.LOST)


@pytest.mark.heavy
@pytest.mark.timeout(600)
def test_pods_survive_killed_raylets_and_the_loss_of_the_head(stage: RayStage) -> None:
    cluster = stage.cluster
    for instance_id in ("i-head", "i-0", "i-1"):
        stage.runtime.start(
            order(f"p-{instance_id}", "sh", "-c", "sleep 600 & sleep 600", instance_id=instance_id)
        )
        running(stage.runtime, f"p-{instance_id}")
    reports = stage.runtime.get_reports(list(stage.runtime.list_pods()))
    os.kill(cluster.raylet("i-0"), signal.SIGKILL)
    poll_until(lambda: stage.runtime.unready_reasons(["i-0"]))
    poll_until(lambda: not stage.runtime.unready_reasons(["i-0"]))
    os.kill(cluster.store(), signal.SIGKILL)
    for instance_id in ("i-head", "i-0", "i-1"):
        again = order(f"q-{instance_id}", "echo", "back", instance_id=instance_id)
        deadline = time.monotonic() + 150
        while True:
            try:
                stage.runtime.start(again)
                break
            except RuntimeFailure:
                assert time.monotonic() < deadline
                time.sleep(1)
    for instance_id in ("i-head", "i-0", "i-1"):
        assert ended_after_restart(stage.runtime, f"q-{instance_id}").exit_code == 0
    assert stage.runtime.get_reports(list(reports)) == reports
    for pod_id in reports:
        stage.runtime.stop(pod_id, 0)
        assert ended(stage.runtime, pod_id).cause is PodCause.STOPPED


@pytest.mark.heavy
def test_pods_and_all_their_processes_end_when_the_node_process_is_killed(stage: RayStage) -> None:
    cluster = stage.cluster
    cluster.add("i-2")
    cluster.wait()
    stage.runtime.start(stage.long("p-1"))
    stage.runtime.start(order("p-2", "sh", "-c", "sleep 600 & sleep 600", instance_id="i-2"))
    running(stage.runtime, "p-1")
    running(stage.runtime, "p-2")
    of_pod = [pid for pid in process_ids() if _belongs_to_pod(pid, cluster.home("i-2"))]
    assert len(of_pod) >= 2
    cluster.process("i-2").kill()
    report = ended(stage.runtime, "p-2")
    assert report.cause in (PodCause.LOST, PodCause.HOST_STOPPED), report
    cluster.process("i-2").wait(30)
    poll_until(lambda: not any(alive(pid) for pid in of_pod))
    assert stage.runtime.get_reports(["p-1"])["p-1"].state is PodState.RUNNING
    del cluster.at["i-2"]


def ended_after_restart(runtime: RayRuntime, pod_id: str) -> PodReport:
    deadline = time.monotonic() + 150
    while True:
        report = runtime.get_reports([pod_id])[pod_id]
        if report.state is PodState.EXITED:
            return report
        assert time.monotonic() < deadline, report
        with contextlib.suppress(RuntimeFailure):
            runtime.start(order(pod_id, "echo", "back", instance_id=pod_id.partition("-")[2]))
        time.sleep(0.5)


def _belongs_to_pod(pid: int, home: Path) -> bool:
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False
    return f"BERTH_POD_DIR={home}/".encode() in environment
