"""Pods with scripted behaviour on any runtime."""

import os
import signal
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol, TypeVar

import pytest

from pools.runtimes.base import PodCause, PodReport, PodSpec, PodState, PodUsage, Runtime
from pools.runtimes.files.base import FilesNotFound
from pools.runtimes.local import LocalRuntime
from pools.runtimes.ray.runtime import RayRuntime
from pools.runtimes.shim.processes import process_ids
from tests.contracts.ray.cluster import RayCluster
from tests.fakes.runtime import FakeRuntime

PATIENCE = 180.0  # time limit in seconds; a machine under load starts pods slowly
UID = 1_900_000_007
T = TypeVar("T")


def order(pod_id: str, *command: str, **changes: object) -> PodSpec:
    values: dict[str, object] = {
        "pod_id": pod_id, "name": f"train-1/{pod_id}", "workspace": "train-1", "working_dir": None,
        "command": command or ("true",), "env": {"RANK": "0"}, "instance_id": "i-0", "devices": (),
        "grace_seconds": 5, "project": "vision", "uid": UID,
    }  # fmt: skip
    return PodSpec(**{**values, **changes})  # type: ignore[arg-type]


def poll_until(look: Callable[[], T], enough: Callable[[T], bool] = bool) -> T:
    """Call `look` until `enough` accepts its result. Return the accepted result."""
    started = time.monotonic()
    while not enough(answer := look()):
        waited = time.monotonic() - started
        assert waited < PATIENCE, f"condition not met within {PATIENCE} s: {answer}"
        time.sleep(min(0.02 + waited / 20, 0.5))
    return answer


def ended(runtime: Runtime, pod_id: str) -> PodReport:
    return poll_until(
        lambda: runtime.get_reports([pod_id])[pod_id], lambda report: report.state == PodState.EXITED
    )


def running(runtime: Runtime, pod_id: str) -> PodReport:
    return poll_until(
        lambda: runtime.get_reports([pod_id])[pod_id], lambda report: report.state == PodState.RUNNING
    )


class Stage(Protocol):
    """Controls a runtime's pods in contract tests.

    `line_end` completes a line on runtimes that deliver only complete log lines and is empty on others.
    `line_break` is a line break that the runtime delivers unchanged. `measures_usage` is false if the runtime
    does not measure pods. `has_channels` is false if the runtime rejects channels.
    """

    line_end: bytes
    line_break: bytes
    measures_usage: bool
    has_channels: bool

    @property
    def runtime(self) -> Runtime: ...

    def order(self, pod_id: str, *command: str) -> PodSpec:
        """Return the spec of a pod that runs this command."""

    def long(self, pod_id: str) -> PodSpec:
        """Return the spec of a pod that runs until `end_pod` or SIGTERM."""

    def stubborn(self, pod_id: str) -> PodSpec:
        """Return the spec of a pod that ignores SIGTERM."""

    def noticing(self, pod_id: str) -> PodSpec:
        """Return the spec of a pod that writes `noticed` when it receives SIGUSR1, and ends on SIGTERM."""

    def finish_noticing(self, pod_id: str) -> None:
        """End the command of a pod from `noticing` with exit code 4 after it has received SIGUSR1.

        A child process of the command keeps running.
        """

    def end_pod(self, pod_id: str, exit_code: int) -> None: ...

    def crash_pod(self, pod_id: str, number: int) -> None: ...

    def write_output(self, pod_id: str, data: bytes) -> None:
        """Make the pod write `data` to its log, and wait until the log contains it."""

    def work(self, pod_id: str) -> None:
        """Let a child process of the pod use CPU briefly, and wait until that child has exited."""

    def wait_out_grace_period(self, seconds: int) -> None: ...

    def restart(self) -> Runtime:
        """Return a new runtime with the same state, as after a restart."""


class LocalStage:
    """Runs pods as shells that read commands from a pipe."""

    line_end, line_break, measures_usage, has_channels = b"", b"\r\n", True, True
    SHELL = 'mkfifo "$BERTH_POD_DIR/do"; while :; do . "$BERTH_POD_DIR/do"; done'

    def __init__(self, root: Path) -> None:
        self.root = root
        self.runtime: Any = LocalRuntime(root, anchor="")

    def order(self, pod_id: str, *command: str) -> PodSpec:
        return order(pod_id, *command)

    def long(self, pod_id: str) -> PodSpec:
        return order(pod_id, "sh", "-c", self.SHELL)

    def stubborn(self, pod_id: str) -> PodSpec:
        return order(pod_id, "sh", "-c", f"trap '' TERM; {self.SHELL}")

    def noticing(self, pod_id: str) -> PodSpec:
        loop = 'while [ ! -e "$BERTH_POD_DIR/end" ]; do sleep 0.1; done; exit 4'
        return order(pod_id, "sh", "-c", f"trap 'echo noticed' USR1; sleep 1000 & echo ready; {loop}")

    def finish_noticing(self, pod_id: str) -> None:
        (self.root / "pods" / pod_id / "work" / "end").touch()

    def end_pod(self, pod_id: str, exit_code: int) -> None:
        self._do(pod_id, f"exit {exit_code}")

    def crash_pod(self, pod_id: str, number: int) -> None:
        self._do(pod_id, f"kill -{number} $$; sleep 60")

    def write_output(self, pod_id: str, data: bytes) -> None:
        size = self.runtime.read_log(pod_id, 0, 0).size
        escaped = "".join(f"\\{byte:03o}" for byte in data)
        self._do(pod_id, f"printf '{escaped}'")
        poll_until(lambda: self.runtime.read_log(pod_id, 0, 0).size >= size + len(data))

    def work(self, pod_id: str) -> None:
        size = self.runtime.read_log(pod_id, 0, 0).size
        self._do(pod_id, "sh -c 'i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done'; echo done")
        poll_until(lambda: self.runtime.read_log(pod_id, 0, 0).size > size)

    def wait_out_grace_period(self, seconds: int) -> None:
        # Real time passes.
        pass

    def restart(self) -> Runtime:
        self.runtime = LocalRuntime(self.root, anchor="")
        return self.runtime

    def pid(self, pod_id: str) -> int:
        status = poll_until(lambda: self.runtime._pod_dir(pod_id).read("status"))
        assert status is not None
        return int(status["pid"])

    def sweep(self) -> None:
        """Stop every pod, so that no process outlives its test."""
        for pod_id in self.runtime.list_pods():
            self.runtime.stop(pod_id, 0)
        for pod_id in self.runtime.list_pods():
            ended(self.runtime, pod_id)

    def _do(self, pod_id: str, script: str) -> None:
        pipe = self.root / "pods" / pod_id / "work" / "do"
        poll_until(pipe.exists)
        with pipe.open("w") as file:
            file.write(script + "\n")


def enclosed_stage(tmp_path: Path) -> Iterator[LocalStage]:
    """Yield a stage whose pods are isolated, or skip the test if this machine cannot isolate pods."""
    stage = LocalStage(tmp_path / "home" / "run")
    if not stage.runtime.isolation.encloses:
        assert stage.runtime.isolation.obstacle
        pytest.skip(stage.runtime.isolation.obstacle)
    yield stage
    stage.sweep()


class RayStage(LocalStage):
    """Runs pods as shells in jobs of a real Ray cluster that all tests share."""

    def __init__(self, cluster: RayCluster, root: Path) -> None:
        self.cluster, self.berth = cluster, root
        self.root = cluster.home("i-0")
        self.restart()

    def restart(self) -> Runtime:
        nodes = self.cluster.at.values()
        self.runtime = RayRuntime(self.berth, lambda: list(nodes), prefix=f"{self.berth.parent.name}-")
        return self.runtime

    def sweep(self) -> None:
        """Stop and forget every pod, because the next test reuses the pod names."""
        super().sweep()
        for pod_id in self.runtime.list_pods():
            self.runtime.forget(pod_id)


class FakeStage:
    line_end, line_break, measures_usage, has_channels = b"", b"\r\n", True, False

    def __init__(self) -> None:
        self.runtime: FakeRuntime = FakeRuntime()

    def order(self, pod_id: str, *command: str) -> PodSpec:
        return order(pod_id, *command)

    def long(self, pod_id: str) -> PodSpec:
        return order(pod_id, "sleep", "inf")

    def stubborn(self, pod_id: str) -> PodSpec:
        self.runtime.stubborn.add(pod_id)
        return order(pod_id, "sleep", "inf")

    def noticing(self, pod_id: str) -> PodSpec:
        self.runtime.noticing.add(pod_id)
        return order(pod_id, "sleep", "inf")

    def finish_noticing(self, pod_id: str) -> None:
        self.runtime.end(pod_id, exit_code=4, cause=PodCause.STOPPED)

    def end_pod(self, pod_id: str, exit_code: int) -> None:
        self.runtime.end(pod_id, exit_code=exit_code)

    def crash_pod(self, pod_id: str, number: int) -> None:
        self.runtime.end(pod_id, signal=number)

    def write_output(self, pod_id: str, data: bytes) -> None:
        self.runtime.write(pod_id, data)

    def work(self, pod_id: str) -> None:
        before = self.runtime.uses.get(pod_id, PodUsage(0.0, 1))
        self.runtime.uses[pod_id] = PodUsage(before.cpu_seconds + 0.5, 1)

    def wait_out_grace_period(self, seconds: int) -> None:
        self.runtime.clock.advance(seconds)  # type: ignore[attr-defined]

    def restart(self) -> Runtime:
        return self.runtime


def alive(pid: int) -> bool:
    """Return whether the process is running and is not a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return fields[0] != "Z"


def machine_pids(pod_pid: int, inside: Collection[int]) -> set[int]:
    """Translate process IDs inside a pod to process IDs on this machine."""
    namespace = _namespace(pod_pid)
    if namespace == _namespace(os.getpid()):
        return set(inside)
    return {pid for pid in process_ids() if _namespace(pid) == namespace and _innermost_pid(pid) in inside}


def _namespace(pid: int) -> str:
    try:
        return str(Path(f"/proc/{pid}/ns/pid").readlink())
    except OSError:
        return ""


def _innermost_pid(pid: int) -> int:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:  # the process has already exited
        return 0
    return next(int(line.split()[-1]) for line in status.splitlines() if line.startswith("NSpid:"))


def files_containing(directory: Path, *texts: str) -> list[Path]:
    """Return the files below a directory that contain one of the texts.

    Ignore files that disappear meanwhile.
    """
    paths = []
    for folder, _, names in os.walk(directory):
        for path in (Path(folder, name) for name in names):
            with suppress(OSError):
                if path.is_file() and any(text.encode() in path.read_bytes() for text in texts):
                    paths.append(path)
    return paths


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


def claim_files_of_an_ended_pod_are_read_without_links(runtime: Runtime, pod: PodSpec) -> None:
    """Contract test for every runtime that keeps files. The pod must run `LEAVES_FILES`."""
    runtime.start(pod)
    assert ended(runtime, pod.pod_id).exit_code == 3
    listing = runtime.list_retained_files(pod.pod_id, pod.workspace, "")
    paths = {file.path for file in listing.files}
    assert {"pod/a.txt", "workspace/deep/b"} <= paths
    assert not any("secret" in path or "order" in path for path in paths)
    assert listing.skipped["pod/link"] == listing.skipped["workspace/out"] == "is a symbolic link"
    assert runtime.read_retained_file(pod.pod_id, pod.workspace, "workspace/deep/b", 1, 9) == b"eta"
    assert [f.path for f in runtime.list_retained_files(pod.pod_id, pod.workspace, "pod").files] == [
        "pod/a.txt"
    ]
    for path in ("pod/link", "pod/../order", "pod", "", "etc/passwd", "workspace/out/passwd", "../order"):
        with pytest.raises(FilesNotFound):
            runtime.read_retained_file(pod.pod_id, pod.workspace, path, 0, 10)
    for path in ("pod/..", "etc", "/etc"):
        with pytest.raises(FilesNotFound):
            runtime.list_retained_files(pod.pod_id, pod.workspace, path)
    runtime.forget(pod.pod_id)
    with pytest.raises(FilesNotFound):
        runtime.list_retained_files(pod.pod_id, pod.workspace, "")


LEAVES_FILES = (
    "sh",
    "-c",
    """
    cd "$BERTH_POD_DIR" && echo alpha > a.txt && ln -s /etc/passwd link
    cd "$BERTH_WORKSPACE" && mkdir deep && printf beta > deep/b && ln -s /etc out
    exit 3
    """,
)
