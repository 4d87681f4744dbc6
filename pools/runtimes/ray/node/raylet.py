"""Start and stop a node's Ray processes."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from pools.runtimes.ray.cluster import NODE_LABEL, device_resource
from pools.runtimes.ray.node.settings import NodeSettings
from pools.runtimes.shim.processes import descendants, send_signal

# Load libc before the process has threads, because libc is used between fork and exec.
_LIBC = ctypes.CDLL(None)
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
STARTED = "Ray runtime started"  # text that `ray start` prints once Ray has started
GRACE_SECONDS = 8.0
RESTART_DELAY_SECONDS = 1.0
# A node without pods exits if Ray fails to start for this long. The node is then replaced or restarted.
RESTART_SECONDS_MAX = 600.0
ADOPT_VARIABLE = "BERTH_RAY_PROCESS"
# The head detects dead nodes after 5 s (Ray's default: 15 s) and hanging nodes after 30 s (default: 60 s).
# With much shorter timeouts, a machine that is merely busy would lose all its pods.
_HEALTH_CHECKS = {
    "RAY_health_check_initial_delay_ms": "5000",
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_timeout_ms": "5000",
    "RAY_health_check_failure_threshold": "5",
    "RAY_raylet_start_wait_time_s": "120",
    # A node exits after 20 s without its head (Ray's default: 60 s).
    "RAY_gcs_rpc_server_reconnect_timeout_s": "20",
}

# Disable Ray services that listen on all addresses without authentication.
# Two listeners cannot be switched off, but an invalid port prevents them from starting.
_NO_OPEN_PORTS = {
    "RAY_enable_metrics_collection": "false",
    "DASHBOARD_METRIC_PORT": "-1",
    "AUTOSCALER_METRIC_PORT": "-1",
}


class AdoptedProcess:
    """Child process that was started before this process loaded new code."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Return the exit code, or None while the process runs.

        The code is negative if a signal killed the process.
        """
        if self.returncode is None:
            try:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
            except ChildProcessError:  # the process ended while the code was being replaced
                pid, status = self.pid, 0
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def terminate(self) -> None:
        send_signal(self.pid, signal.SIGTERM)

    def wait(self, timeout: float) -> int:
        """Wait for the process, and return its exit code. Raises subprocess.TimeoutExpired."""
        deadline = time.monotonic() + timeout
        while (code := self.poll()) is None:
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired("ray start", timeout)
            time.sleep(0.05)
        return code


class RayProcess:
    """Ray's processes on this node. `pod_processes()` returns the processes that keep running when Ray is
    stopped.
    """

    def __init__(self, node: NodeSettings, pod_processes: Callable[[], set[int]]) -> None:
        self._node, self._pod_processes = node, pod_processes
        self._process: subprocess.Popen[bytes] | AdoptedProcess | None = None
        self._last_up = time.monotonic()

    def adopt_or_start(self) -> None:
        """Adopt the Ray process that was started before this process loaded new code, or start Ray.

        If the adopted Ray process joined a different head node, restart Ray.
        """
        pid, _, head = os.environ.pop(ADOPT_VARIABLE, "").partition(" ")
        if pid:
            self._process = AdoptedProcess(int(pid))
            if head == self._node.head:
                return
            self.end()
        self._process = _start(self._node)

    def adoption_variables(self) -> dict[str, str]:
        """Return environment variables that let this process adopt Ray again after loading new code."""
        if self._process is None or not self.is_running:
            return {}
        return {ADOPT_VARIABLE: f"{self._process.pid} {self._node.head}"}

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def has_failed_repeatedly(self) -> bool:
        """Whether Ray has been failing to start for several minutes."""
        return time.monotonic() > self._last_up + RESTART_SECONDS_MAX

    def obstacle(self) -> str:
        """Return why Ray cannot run pods on this node yet, or ""."""
        if self._process is None or not self.is_running:
            return "ray start has ended and is being restarted"
        return "" if STARTED in _read_log(self._node) else "ray start has not finished yet"

    def restart(self) -> None:
        """Start Ray again after it has exited. Pods keep running."""
        if STARTED in _read_log(self._node):
            self._last_up = time.monotonic()
        self.end()
        time.sleep(RESTART_DELAY_SECONDS)
        self._process = _start(self._node)

    def end(self, *, spares_pods: bool = True) -> None:
        """Stop all of Ray's processes, and also the pods unless `spares_pods` is set."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(GRACE_SECONDS)
        deadline = time.monotonic() + GRACE_SECONDS
        while time.monotonic() < deadline:
            remaining = set(descendants(os.getpid()))
            if spares_pods:
                remaining -= self._pod_processes()
            if not remaining:
                return
            for pid in remaining:
                send_signal(pid, signal.SIGKILL)
            _reap(remaining)
            time.sleep(0.05)


def _read_log(node: NodeSettings) -> str:
    path = node.root / "ray.log"
    return path.read_text(errors="replace") if path.exists() else ""


def _start(node: NodeSettings) -> subprocess.Popen[bytes]:
    # Let this process adopt orphaned Ray processes.
    _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    token = node.root / "secret"
    token.write_text(node.secret)
    log_path = node.root / "ray.log"
    if log_path.exists():
        log_path.rename(node.root / "ray.log.1")
    with log_path.open("wb") as log:
        return subprocess.Popen(
            _command(node), stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/",
            env=_environment(token), start_new_session=True,
            preexec_fn=_end_with_parent,  # noqa: PLW1509 (one system call, which takes no lock)
        )  # fmt: skip


def _command(node: NodeSettings) -> list[str]:
    resources = {device_resource(index): 1 for index in range(node.devices)}
    host, _, port = node.head.rpartition(":")
    options = (
        ["--head", "--port", port, "--dashboard-host", host, "--dashboard-port", str(node.jobs_port)]
        if node.is_head
        else ["--address", node.head]
    )
    if node.temp:
        options += ["--temp-dir", node.temp]
    return [
        str(Path(sys.executable).parent / "ray"), "start", *options, "--node-ip-address", node.address,
        "--labels", f"{NODE_LABEL}={node.label}", "--resources", json.dumps(resources),
        "--num-cpus", "1", "--num-gpus", "0", "--disable-usage-stats", "--block", *node.extra,
    ]  # fmt: skip


def _environment(token: Path) -> dict[str, str]:
    """Return the environment variables for Ray.

    Pods do not inherit the variables that Ray inherits from this process.
    """
    names = ("PATH", "HOME", "LANG", "LD_LIBRARY_PATH")
    inherited = {name: os.environ[name] for name in names if name in os.environ}
    return inherited | _HEALTH_CHECKS | _NO_OPEN_PORTS | {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(token),
        "RAY_JOB_START_TIMEOUT_SECONDS": "600",
        # Accept different patch versions of Python, such as 3.11.4 and 3.11.9.
        "RAY_DEFAULT_PYTHON_VERSION_MATCH_LEVEL": "minor",
        # This limit is high, because the shim enforces the pod's own grace period.
        "RAY_JOB_STOP_WAIT_TIME_S": "86400",
    }  # fmt: skip


def _reap(pids: Iterable[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)


def _end_with_parent() -> None:
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
