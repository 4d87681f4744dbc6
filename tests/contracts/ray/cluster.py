"""A real Ray cluster on this machine, with one process and one address per node."""

import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import httpx

from pools.runtimes.ray.cluster import AGENT_PORT, JOBS_PORT, RayNode, node_label
from pools.runtimes.ray.node.raylet import GRACE_SECONDS
from pools.runtimes.shim.processes import descendants
from tests.support.open_files import open_files
from tests.support.ports import free_port

SECRET = "5ec2e7" * 10
BOOT_SECONDS = 180.0
_LISTEN = "0A"
_HOSTS = itertools.count(2)


class RayCluster:
    """A head (node 0) and workers, each with its own loopback address and ports."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._gcs = free_port()
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self.at: dict[str, RayNode] = {}

    def add(self, instance_id: str, devices: tuple[str, ...] = ()) -> RayNode:
        number = len(self.at)
        pid = os.getpid()
        address = f"127.{100 + pid % 100}.{pid // 100 % 250}.{next(_HOSTS)}"
        node = RayNode(instance_id, "here", number, address, devices, SECRET)
        head = address if not self.at else next(iter(self.at.values())).address
        extra = ["--dashboard-agent-listen-port", str(free_port()), "--object-store-memory", "80000000"]
        if not self.at:
            extra += ["--ray-client-server-port", str(free_port())]
        config = {
            "label": node_label(instance_id), "address": address, "head": f"{head}:{self._gcs}",
            "is_head": not self.at, "secret": SECRET, "root": str(self.home(instance_id)),
            "devices": len(devices), "agent_port": AGENT_PORT, "jobs_port": JOBS_PORT, "extra": extra,
            # A short path, because socket paths are limited to 107 bytes.
            "temp": tempfile.mkdtemp(prefix="berth-ray-"),
        }  # fmt: skip
        settings = self.root / f"{instance_id}.json"
        settings.write_text(json.dumps(config))
        with (self.root / f"{instance_id}.log").open("wb") as log:
            self._processes[instance_id] = subprocess.Popen(
                [sys.executable, "-m", "pools.runtimes.ray.node.main", str(settings)],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                env={**os.environ, "BERTH_ANCHOR": "", "BERTH_IMAGES": "auto"},
            )  # fmt: skip
        self.at[instance_id] = node
        return node

    def home(self, instance_id: str) -> Path:
        return self.root / instance_id

    def process(self, instance_id: str) -> "subprocess.Popen[bytes]":
        return self._processes[instance_id]

    def raylet(self, instance_id: str) -> int:
        """Return the process ID of a node's raylet."""
        below = descendants(self._processes[instance_id].pid)
        return next(pid for pid in below if process_name(pid) == "raylet")

    def store(self) -> int:
        """Return the process ID of the head's GCS server. Without it, Ray stops on every node."""
        head = next(iter(self._processes.values()))
        return next(pid for pid in descendants(head.pid) if process_name(pid) == "gcs_server")

    def ports_on_all_addresses(self) -> list[int]:
        """Return the cluster's ports that are open on every address of this machine."""
        inodes = {inode for process in self._processes.values() for inode in _sockets(process.pid)}
        rows = [
            line.split()
            for table in ("tcp", "tcp6")
            for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]
        ]
        listening = [row[1].split(":") for row in rows if row[3] == _LISTEN and row[9] in inodes]
        return sorted({int(port, 16) for address, port in listening if not address.strip("0")})

    def wait(self) -> None:
        """Wait until all nodes have registered."""
        head = next(iter(self.at.values()))
        address = f"http://{head.address}:{JOBS_PORT}/nodes?view=summary"
        deadline = time.monotonic() + BOOT_SECONDS
        alive = 0
        while alive < len(self.at):
            assert time.monotonic() < deadline, f"{alive} of {len(self.at)} nodes registered: {self._logs()}"
            assert all(process.poll() is None for process in self._processes.values()), self._logs()
            time.sleep(0.1)
            with contextlib.suppress(httpx.HTTPError, KeyError, ValueError):
                body = httpx.get(
                    address, headers={"Authorization": f"Bearer {SECRET}"}, timeout=5, trust_env=False
                ).json()
                summary = body["data"]["summary"]
                alive = sum(node["raylet"]["state"] == "ALIVE" for node in summary)

    def end(self) -> None:
        for process in reversed(self._processes.values()):
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in self._processes.values():
            process.wait(4 * GRACE_SECONDS)

    def _logs(self) -> str:
        texts = [path.read_text(errors="replace")[-2000:] for path in sorted(self.root.glob("*.log"))]
        texts += [path.read_text(errors="replace")[-2000:] for path in sorted(self.root.glob("*/ray.log"))]
        return "\n".join(texts)


@contextlib.contextmanager
def ray_cluster(root: Path) -> Iterator[RayCluster]:
    """Run a head without devices, and two nodes with two devices each."""
    cluster = RayCluster(root)
    try:
        cluster.add("i-head")
        cluster.wait()
        cluster.add("i-0", ("GPU-a", "GPU-b"))
        cluster.add("i-1", ("GPU-c", "GPU-d"))
        cluster.wait()
        yield cluster
    finally:
        cluster.end()


def process_name(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().strip()
    return ""  # the process has already exited


def _sockets(root: int) -> set[str]:
    sockets: set[str] = set()
    for pid in [root, *descendants(root)]:
        with contextlib.suppress(OSError):  # the process has already exited
            sockets |= {file[len("socket:[") : -1] for file in open_files(pid) if file.startswith("socket:")}
    return sockets
