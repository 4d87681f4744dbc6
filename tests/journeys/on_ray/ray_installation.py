"""An installation with a Ray pool."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from berth.client.models.nodes import Node
from berth.client.models.workloads import Event, Pod, Workload
from pools.runtimes.shim.processes import descendants
from pools.runtimes.shim.records import read_record
from tests.contracts.ray.cluster import process_name
from tests.journeys.command import Terminal, sign_in
from tests.journeys.installation import Installation, until

T = TypeVar("T")
POOL = "cluster"
LONG = 120.0
# Prints its rank, node and devices, then works until it is stopped.
WORKS = """
echo "$BERTH_POD_ID" >> "$BERTH_WORKSPACE/started"
echo "rank $RANK of $WORLD_SIZE in run $BERTH_RUN on $BERTH_NODE sees $CUDA_VISIBLE_DEVICES in $BERTH_POD_DIR"
trap 'echo "asked to end"; exit 0' TERM
step=0
while [ ! -e "$BERTH_WORKSPACE/enough" ]; do step=$((step + 1)); echo "step $step"; sleep 0.1; done
"""
_POD_OUTPUT = re.compile(r"^rank (\d+) of (\d+) in run (\d+) on (\S+) sees (\S+) in (\S+)$", re.MULTILINE)


def add_ray_pool(berth: Installation) -> "RayInstallation":
    """Create a Ray pool of up to three nodes with two GPUs each, and quotas: vision 2 GPUs, ads 4 GPUs."""
    root = berth.home.parent
    installation = RayInstallation(
        berth, *(sign_in(berth, name, root / name) for name in ("admin", "dave", "grace"))
    )
    installation.admin.berth(
        "pool", "create", POOL, "--provider", "local", "--runtime", "ray", "--nodes", "0:3",
        "--gpus-per-node", "2", "--cpu", "2", "--memory", "2048",
        "--set", "reconcile_tick=1", "--set", "autoscale_idle_timeout=600",
    )  # fmt: skip
    quotas = installation.admin.client().quotas
    for name, gpus in (("research", 2), ("product", 4)):
        quotas.create("department", name, POOL, {"gpu": gpus})
    for name, gpus in (("vision", 2), ("ads", 4)):
        quotas.create("project", name, POOL, {"gpu": gpus})
    return installation


@dataclass(frozen=True)
class RayInstallation:
    berth: Installation
    admin: Terminal
    dave: Terminal
    grace: Terminal
    devices = {"cluster-0": "0,1", "cluster-1": "2,3"}  # valid until a node is replaced

    def submit(
        self, user: Terminal, name: str, command: str = WORKS, replicas: int = 2, memory_mib: int = 64,
        **more: Any,
    ) -> Workload:  # fmt: skip
        role = {"name": "worker", "replicas": replicas, "gpu": 2, "cpu": 0.1, "memory_mib": memory_mib}
        document = {
            "name": name, "project": "vision" if user is self.dave else "ads", "pools": [POOL],
            "command": ["sh", "-c", command], "roles": [role], "grace_period_seconds": 5, **more,
        }  # fmt: skip
        return user.client().workloads.submit(document)

    def cancel_all(self) -> None:
        client = self.admin.client()
        for live in client.workloads.list(pool=POOL):
            if not live.has_ended:
                client.workloads.cancel(live.id)
                self.until(live, "cancelled", "completed", "failed")

    def finish(self, workload: Workload) -> None:
        (self._workspace(workload) / "enough").touch()

    def started(self, workload: Workload) -> list[str]:
        """Return the IDs that all started pods have written, including duplicates."""
        return self.written(workload, "started").split()

    def written(self, workload: Workload, name: str) -> str:
        return (self._workspace(workload) / name).read_text()

    def pods(self, workload: Workload, run: int | None = None) -> list[Pod]:
        """Return the pods of a run, by default the current one, ordered by rank."""
        client = self.admin.client()
        run = run or client.workloads.get(workload.id).run
        pods = [pod for pod in client.workloads.pods(workload.id) if pod.run == run]
        return sorted(pods, key=lambda pod: pod.rank)

    def log(self, workload: Workload, pod: Pod) -> str:
        log = self.admin.client().workloads.log(workload.id, pod=pod.short_name, run=pod.run)
        return log.data.decode()

    def pod_output(self, workload: Workload, pod: Pod) -> Sequence[str]:
        """Return the rank, world size, run, node, devices and directory that the pod printed."""
        match = until(lambda: _POD_OUTPUT.search(self.log(workload, pod)))
        assert match is not None
        return match.groups()

    def events(self, workload: Workload) -> Sequence[Event]:
        return self.admin.client().workloads.events(workload.id)

    def nodes(self) -> dict[str, Node]:
        return {node.name: node for node in self.admin.client().nodes.list(pool=POOL)}

    def part(self, node: Node, name: str) -> int | None:
        """Return the ID of the named Ray process on a node, or None if the process is not running."""
        below = descendants(self.process(node))
        return next((pid for pid in below if process_name(pid) == name), None)

    def process(self, node: Node) -> int:
        """Return the ID of the node's main process, which is the parent of Ray and the agent."""
        home = self.berth.home / "raylets/nodes" / POOL / str(node.instance_id)
        record = read_record(str(home / "process"))
        assert record is not None
        return int(record["pid"])

    def find_process(self, workload: Workload, pod: Pod) -> int:
        """Return the process ID of the pod's command."""
        directory = Path(self.pod_output(workload, pod)[-1]).parent
        status = read_record(str(directory / "status"))
        assert status is not None
        return int(status["pid"])

    def until(self, workload: Workload, *phases: str) -> Workload:
        client = self.admin.client()

        def reached() -> Workload | None:
            current = client.workloads.get(workload.id)
            return current if current.phase in phases else None

        current = self._until(reached, workload)
        assert current is not None
        return current

    def until_pods(
        self, workload: Workload, running: int, *, run: int | None = None, without: Pod | None = None
    ) -> None:
        """Wait until `running` pods of a run, by default the current one, are running."""

        def enough() -> bool:
            pods = [pod for pod in self.pods(workload, run) if without is None or pod.id != without.id]
            return [pod.state for pod in pods].count("running") == running

        self._until(enough, workload)

    def _until(self, probe: Callable[[], T], workload: Workload) -> T:
        try:
            return until(probe, LONG)
        except AssertionError:
            raise AssertionError(self.story(workload)) from None

    def story(self, workload: Workload) -> str:
        """Describe a workload that did not reach the expected state, with its pool and the scheduler log."""
        client = self.admin.client()
        now = client.workloads.get(workload.id)
        lines = [f"{now.phase}: {now.reason}: {now.message}"]
        lines += [f"{event.at} {event.kind} {event.message}" for event in self.events(workload)]
        lines += [f"{pod.short_name} {pod.node} {pod.state} {pod.message}" for pod in self.pods(workload)]
        history = client.node_pools.history(POOL, limit=60)
        lines += [f"{event.at} {event.node} {event.kind} {event.reason}" for event in history]
        lines += (self.berth.home / "logs/scheduler.log").read_text().splitlines()[-40:]
        return "\n".join(lines)

    def _workspace(self, workload: Workload) -> Path:
        return self.berth.home / "raylets/workspaces" / workload.id
