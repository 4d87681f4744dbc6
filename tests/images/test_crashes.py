"""Tests for containers whose processes are killed: nothing is left behind, and known exit codes are kept."""

import fcntl
import hashlib
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pools.runtimes.base import PodCause, PodState
from pools.runtimes.images.store import container_name
from pools.runtimes.images.traces import kill_processes
from pools.runtimes.local import LocalRuntime
from pools.runtimes.shim.processes import process_ids, start_time
from tests.contracts.pods import alive, ended, kill, poll_until, running
from tests.images.proxy import stalling_proxy
from tests.images.registry import Registry, busybox_layer, layer
from tests.images.stage import ImageStage, assert_nothing_is_left

DIGEST = "fedcba9876543210" * 4


@pytest.fixture
def hanging_image() -> Iterator[str]:
    """Return an image in a registry that accepts connections but never responds."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"127.0.0.1:{listener.getsockname()[1]}/team/x@sha256:{DIGEST}"


def kill_shim_and_runtime(stage: ImageStage) -> None:
    """Kill the shim, and wait until a new runtime does not know the pod, so that `start` resumes the pod."""
    kill(stage.shim("p-1"))
    stage.restart()
    poll_until(
        lambda: stage.runtime.get_reports(["p-1"])["p-1"].state, lambda state: state is PodState.UNKNOWN
    )


def start_long(stage: ImageStage, image: str) -> int:
    """Start a pod with a background process. Return the process ID of its command on this machine."""
    stage.start("p-1", image, "sh", "-c", f"setsid sleep 1000 & {stage.SHELL}")
    running(stage.runtime, "p-1")
    return stage.pid("p-1")


@pytest.mark.heavy
def test_killed_shim_leaves_no_container_behind(stage: ImageStage, busybox: str) -> None:
    command, init = start_long(stage, busybox), stage.init("p-1")
    kill(stage.shim("p-1"))
    poll_until(lambda: not alive(command) and not alive(init))
    assert ended(stage.runtime, "p-1").cause is PodCause.LOST
    stage.runtime.forget("p-1")
    assert_nothing_is_left(stage)
    assert stage.runtime.list_pods() == ()


def test_killed_conmon_does_not_affect_the_pod(stage: ImageStage, busybox: str) -> None:
    start_long(stage, busybox)
    kill(stage.find_pid("conmon", "p-1"))
    stage.end_pod("p-1", 6)
    assert ended(stage.runtime, "p-1").exit_code == 6
    assert_nothing_is_left(stage)


def test_pod_ends_when_its_first_process_is_killed(stage: ImageStage, busybox: str) -> None:
    start_long(stage, busybox)
    kill(stage.init("p-1"))
    report = ended(stage.runtime, "p-1")
    assert (report.signal, report.cause) == (9, PodCause.NONE)
    assert_nothing_is_left(stage)


@pytest.mark.heavy
def test_killed_shim_and_conmon_leave_no_container_behind(stage: ImageStage, busybox: str) -> None:
    start_long(stage, busybox)
    for pid in (stage.find_pid("conmon", "p-1"), stage.shim("p-1")):
        kill(pid)
    assert ended(stage.runtime, "p-1").cause is PodCause.LOST
    assert_nothing_is_left(stage)


def test_conmon_is_killed_even_if_it_daemonizes_during_the_process_search(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # conmon does so as soon as podman is killed: its parent process exits after starting a child.
    code = "import os; input(); child = os.fork(); child and print(child, flush=True); child or input()"
    conmon = subprocess.Popen(
        ["conmon", "-c", code, "berth-p-1"], executable=sys.executable, text=True, stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )  # fmt: skip
    stdin, stdout = conmon.stdin, conmon.stdout
    assert stdin and stdout
    children: list[int] = []

    def list_before_the_fork() -> list[int]:
        pids = process_ids()
        if not children:
            stdin.write("\n")
            stdin.flush()
            children.append(int(stdout.readline()))
            conmon.wait()
        return pids

    monkeypatch.setattr("pools.runtimes.images.traces.process_ids", list_before_the_fork)
    kill_processes("berth-p-1")
    assert not alive(children[0])


def test_image_pull_is_retried_after_podman_is_killed(stage: ImageStage, hanging_image: str) -> None:
    stage.start("p-1", hanging_image, "true")
    first = stage.find_pid("podman", "p-1")
    kill(first)
    assert stage.find_pid("podman", "p-1", other_than=first)
    stage.runtime.stop("p-1", 30)
    assert ended(stage.runtime, "p-1").cause is PodCause.STOPPED
    assert_nothing_is_left(stage)


def test_podman_pull_stops_when_its_shim_is_killed(stage: ImageStage, hanging_image: str) -> None:
    stage.start("p-1", hanging_image, "true")
    podman = stage.find_pid("podman", "p-1")
    kill_shim_and_runtime(stage)
    poll_until(lambda: not alive(podman))
    stage.runtime.stop("p-1", 0)
    assert ended(stage.runtime, "p-1").cause is PodCause.STOPPED
    assert not (stage.root / "pods" / "p-1" / "auth.json").exists()
    assert_nothing_is_left(stage)


@pytest.mark.heavy
def test_partly_pulled_image_is_completed_by_the_next_shim(stage: ImageStage, registry: Registry) -> None:
    data = os.urandom(32 << 20)
    layers = [busybox_layer(), layer({"data": data}), layer({"more": data[::-1]})]
    image = registry.push("own/half", layers, Env=["PATH=/bin"])
    script = "sha256sum < /data | cut -c1-64; exit 4"
    temporary = stage.root / "pods" / "p-1" / "podman"
    with stalling_proxy(registry, after=16 << 20) as proxy:
        auth = registry.auth.replace(registry.address, proxy.address)
        image = image.replace(registry.address, proxy.address)
        stage.start("p-1", image, "sh", "-c", script, registry_auth=auth)
        poll_until(proxy.is_stalled.is_set)
        assert any(names for _, _, names in os.walk(temporary))
        kill_shim_and_runtime(stage)
        proxy.release.set()
        stage.start("p-1", image, "sh", "-c", script, registry_auth=auth)
        ended(stage.runtime, "p-1")
    assert ended(stage.runtime, "p-1").exit_code == 4
    assert stage.log("p-1") == hashlib.sha256(data).hexdigest()
    assert not temporary.exists() or list(temporary.iterdir()) == []
    assert_nothing_is_left(stage)


def test_pod_is_resumed_if_its_shim_was_killed_while_creating_the_container(
    stage: ImageStage, busybox: str
) -> None:
    with waiting_podman(stage, busybox, "exit 8"):
        kill_shim_and_runtime(stage)
    stage.start("p-1", busybox, "sh", "-c", "exit 8")
    assert ended(stage.runtime, "p-1").exit_code == 8
    assert_nothing_is_left(stage)


@pytest.mark.heavy
def test_podman_killed_during_container_creation_is_reported_as_a_start_failure(
    stage: ImageStage, busybox: str
) -> None:
    with waiting_podman(stage, busybox, "exit 8") as podman:
        kill(podman)
    report = ended(stage.runtime, "p-1")
    assert report.cause is PodCause.START_FAILED
    assert report.message == "the pod's container could not be created: podman was killed"
    assert_nothing_is_left(stage)


@pytest.mark.parametrize(
    "step",
    ["group", pytest.param("process", marks=pytest.mark.heavy), pytest.param("pid", marks=pytest.mark.heavy)],
)
@pytest.mark.parametrize("victim", ["shim", pytest.param("podman", marks=pytest.mark.heavy)])
def test_shim_killed_at_any_later_creation_step_leaves_no_container_behind(
    stage: ImageStage, busybox: str, step: str, victim: str
) -> None:
    with waiting_podman(stage, busybox, "sleep 1000") as podman:
        pass
    pod = stage.root / "pods" / "p-1"
    name = container_name(str(pod))
    reached = {
        "group": lambda: list(Path("/sys/fs/cgroup").glob(f"*/{name}")),
        "process": lambda: list(Path("/sys/fs/cgroup").glob(f"*/{name}/libpod-*")),
        "pid": (pod / "container.pid").exists,
    }
    poll_until(reached[step])
    shim = stage.runtime._pod_dir("p-1").shim_pid()
    killed = [pid for pid in (podman, shim if victim == "shim" else None) if pid and alive(pid)]
    for pid in killed:
        kill(pid)
    stage.restart()
    # The pod runs if podman had created the container before it could be killed.
    states = (PodState.UNKNOWN, PodState.EXITED) if killed else (PodState.RUNNING,)
    poll_until(lambda: stage.runtime.get_reports(["p-1"])["p-1"].state, lambda state: state in states)
    stage.runtime.stop("p-1", 0)  # the pod may have ended or may be resumable
    ended(stage.runtime, "p-1")
    assert_nothing_is_left(stage)


@contextmanager
def waiting_podman(stage: ImageStage, image: str, script: str) -> Iterator[int]:
    """Start a pod, and yield the podman process that creates its container and waits for the storage lock."""
    assert stage.run("p-0", image, "true").exit_code == 0, "the image is stored"
    with (Path(stage.store.root) / "graph" / "overlay-containers" / "containers.lock").open("r+") as lock:
        fcntl.lockf(lock, fcntl.LOCK_EX)
        stage.start("p-1", image, "sh", "-c", script)
        poll_until((stage.root / "pods" / "p-1" / "container").exists)
        yield stage.find_pid("podman", "p-1")


def test_pod_with_an_image_ends_when_its_anchor_process_ends(
    first_runtime: LocalRuntime, registry: Registry, busybox: str, tmp_path: Path
) -> None:
    host = subprocess.Popen(["sleep", "1000"])
    root = first_runtime.root.parent / f"run-{tmp_path.name}"
    stage = ImageStage(root, registry, first_runtime)
    stage.runtime.anchor = f"{host.pid}:{start_time(host.pid)}"
    start_long(stage, busybox)
    host.kill()
    host.wait()
    report = ended(stage.runtime, "p-1")
    assert (report.signal, report.cause) == (15, PodCause.HOST_STOPPED)
    assert_nothing_is_left(stage)
