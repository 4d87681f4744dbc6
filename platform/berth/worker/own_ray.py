"""Start a Ray cluster from the pods of one run.

Workloads have no access to a pool's Ray cluster, because the cluster's secret would allow a workload to run
code on all nodes and bypass all quotas. A session that needs Ray's tasks, actors or joblib backend therefore
starts its own cluster, which ends when its pods end. Rank 0 is the head node, and the cluster's secret is
derived from the run's secret. This module uses only the standard library.

    python -m berth.worker.own_ray python train.py

As the command of a gang, this line runs `train.py` on rank 0. The other ranks serve as Ray nodes until the
program ends.
"""

import ctypes
import hashlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from secrets import token_hex

START_SECONDS = 90.0
END_SECONDS = 8.0
STARTED = "Ray runtime started"
_PR_SET_PDEATHSIG = 1
# Settings that disable unauthenticated Ray services.
_DISABLED_SERVICES = {
    "RAY_enable_metrics_collection": "false", "DASHBOARD_METRIC_PORT": "-1", "AUTOSCALER_METRIC_PORT": "-1",
}  # fmt: skip


class RayUnavailable(Exception):
    """Raised if Ray could not be started. The message states the reason."""


@dataclass(frozen=True, slots=True)
class PodPosition:
    """Position of a pod in its run. `head` is the address that the other ranks use to reach rank 0."""

    rank: int
    address: str
    head: str
    secret: str
    cpus: int = 1
    gpus: int = 0


def read_position(environ: Mapping[str, str] = os.environ, cpus: int = 1) -> PodPosition:
    """Return this pod's position in the cluster. Raises KeyError or ValueError outside a pod."""
    devices = [device for device in environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if device]
    return PodPosition(
        rank=int(environ["RANK"]),
        address=environ["BERTH_NODE_ADDRESS"],
        head=f"{environ['MASTER_ADDR']}:{int(environ['MASTER_PORT']) + 1}",
        secret=environ.get("BERTH_GANG_SECRET") or token_hex(32),  # single-pod workloads have no gang secret
        cpus=cpus,
        gpus=len(devices),
    )


class OwnRay:
    """Ray cluster of one run.

    Between `start` and `end`, programs can connect with the variables in `environment`.
    """

    def __init__(self, position: PodPosition, memory: int = 200_000_000) -> None:
        self.position, self._memory = position, memory
        self._directory: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables that `ray.init()` needs to connect."""
        assert self._directory is not None
        return {
            "RAY_ADDRESS": self.position.head,
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(self._directory / "secret"),
        }

    @property
    def directory(self) -> str:
        """Ray's session directory. Pods on the same machine have separate directories."""
        assert self._directory is not None
        return str(self._directory / "ray")

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(
        self, seconds: float = START_SECONDS, should_continue: Callable[[], bool] = lambda: True
    ) -> None:
        """Start Ray, and return when this pod has joined.

        Raises RayUnavailable if Ray is not installed, after `seconds`, or once `should_continue` returns
        False.
        """
        if find_spec("ray") is None:
            raise RayUnavailable("Ray is not installed on this pod's node. Ask an admin to install it")
        # Use a short path, because socket paths are limited in length.
        self._directory = Path(tempfile.mkdtemp(prefix="own-ray-", dir="/tmp"))
        (self._directory / "secret").write_text(
            hashlib.sha256(f"ray of {self.position.secret}".encode()).hexdigest()
        )
        (self._directory / "secret").chmod(0o600)
        deadline = time.monotonic() + seconds
        while not self._try_start(deadline):
            if time.monotonic() >= deadline or not should_continue():
                output = self._log_output()[-500:]
                self.end()
                raise RayUnavailable(f"the run's Ray cluster did not start within {seconds:.0f} s: {output}")
            time.sleep(0.5)

    def end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            _end(process)
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)

    def _try_start(self, deadline: float) -> bool:
        if self.position.rank and not _is_listening(self.position.head):
            return False
        if self._process is None or self._process.poll() is not None:
            self._process = self._spawn()
        while self._process.poll() is None and time.monotonic() < deadline:
            if STARTED in self._log_output():
                return True
            time.sleep(0.05)
        return False

    def _spawn(self) -> "subprocess.Popen[bytes]":
        assert self._directory is not None
        with (self._directory / "log").open("wb") as log:
            return subprocess.Popen(
                self._command(), stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/",
                env={**os.environ, **_DISABLED_SERVICES, **self.environment}, start_new_session=True,
                preexec_fn=_end_with_parent,  # noqa: PLW1509 (only a system call)
            )  # fmt: skip

    def _command(self) -> list[str]:
        position = self.position
        join = ["--address", position.head]
        if position.rank == 0:
            port = position.head.rpartition(":")[2]
            join = ["--head", "--port", port, "--include-dashboard", "false"]
            join += ["--ray-client-server-port", str(_free_port())]
        return [
            sys.executable,
            "-m",
            "ray.scripts.scripts",
            "start",
            *join,
            "--node-ip-address",
            position.address,
            "--num-cpus",
            str(position.cpus),
            "--num-gpus",
            str(position.gpus),
            "--temp-dir",
            self.directory,
            "--object-store-memory",
            str(self._memory),
            "--dashboard-agent-listen-port",
            str(_free_port()),
            "--disable-usage-stats",
            "--block",
        ]

    def _log_output(self) -> str:
        log = self._directory / "log" if self._directory else None
        return log.read_text(errors="replace") if log is not None and log.exists() else ""


def main(command: list[str]) -> int:
    """Start Ray and, on rank 0, run the program.

    Return the program's exit code on rank 0, 0 on other ranks, or 1 if Ray did not start.
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    ray = OwnRay(read_position(cpus=len(os.sched_getaffinity(0))))
    try:
        ray.start()
        if ray.position.rank == 0:
            return subprocess.run(command, env={**os.environ, **ray.environment}, check=False).returncode
        while _is_listening(ray.position.head):
            time.sleep(1.0)
        return 0
    except RayUnavailable as missing:
        sys.stderr.write(f"{missing}\n")
        return 1
    finally:
        ray.end()


def _end(process: "subprocess.Popen[bytes]") -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(END_SECONDS)
            return


def _is_listening(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), 1.0):
            return True
    except OSError:
        return False


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])


def _end_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
