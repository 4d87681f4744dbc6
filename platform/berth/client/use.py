"""Measured utilization beside allocation."""

from collections.abc import Iterator
from datetime import datetime

from berth.client.answers import Answer
from berth.client.transport import Transport


class Held(Answer):
    gpu: float = 0
    cpu: float = 0
    memory_mib: int = 0
    gpu_memory_mib: int = 0


class UsedNow(Answer):
    """None was not measured."""

    gpu: float | None = None
    cpu: float | None = None
    memory_mib: int | None = None
    gpu_memory_mib: int | None = None


class Use(Answer):
    """`used.gpu` is what was held times how much of the time it was busy, as far as that is known."""

    held: Held
    used: UsedNow
    gpu_known: float = 0
    gpu_busy_percent: float | None = None
    measured_at: datetime | None = None
    pods: int = 0
    pods_measured: int = 0


class UsePoint(Answer):
    at: datetime
    held: Held
    used: UsedNow
    gpu_known: float = 0


class DeviceUse(Answer):
    index: int
    busy_percent: float | None = None
    memory_mib: int | None = None
    shared: bool = False


class PodUse(Answer):
    pod: str
    run: int
    node: str
    use: Use
    devices: list[DeviceUse] = []


class WorkloadUse(Answer):
    """Of the list: of one workload, together."""

    workload: str
    id: str
    project: str
    pool: str | None = None
    idle_since: datetime | None = None
    now: Use


class OneWorkloadUse(Answer):
    """`step` is how many seconds each point stands for."""

    workload: str
    idle_since: datetime | None = None
    now: Use
    pods: list[PodUse]
    step: int
    over_time: list[UsePoint]


class NodeUse(Answer):
    """`over_time` only of one node that was asked for by its name."""

    node: str
    pool: str
    now: Use
    devices: list[DeviceUse] = []
    step: int | None = None
    over_time: list[UsePoint] = []


class PoolUse(Answer):
    pool: str
    nodes: int
    gpus: int
    now: Use


class UsedHour(Answer):
    """GPU-hours: there, held, and of these how many were measured and how many busy."""

    at: datetime
    there: float
    held: float
    known: float
    busy: float


class ClusterUse(Answer):
    now: Use
    pools: list[PoolUse]
    hours: list[UsedHour]


class Uses:
    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def cluster(self, *, pool: str | None = None, hours: int | None = None) -> ClusterUse:
        """All pools, or one; the latest hours last."""
        return ClusterUse.model_validate(self._transport.get("use", {"pool": pool, "hours": hours}))

    def nodes(self, *, pool: str | None = None, limit: int | None = None) -> Iterator[NodeUse]:
        for item in self._transport.pages("use/nodes", {"pool": pool}, limit):
            yield NodeUse.model_validate(item)

    def workloads(
        self, *, project: str | None = None, pool: str | None = None, limit: int | None = None
    ) -> Iterator[WorkloadUse]:
        """Those that run, whoever holds most GPUs first."""
        for item in self._transport.pages("use/workloads", {"project": project, "pool": pool}, limit):
            yield WorkloadUse.model_validate(item)

    def node(self, name: str, *, span: int | None = None) -> NodeUse:
        return NodeUse.model_validate(self._transport.get(f"nodes/{name}/use", {"span": span}))

    def workload(
        self, workload_id: str, *, span: int | None = None, run: int | None = None
    ) -> OneWorkloadUse:
        """`span`: so many seconds back from its end, or from now."""
        told = self._transport.get(f"workloads/{workload_id}/use", {"span": span, "run": run})
        return OneWorkloadUse.model_validate(told)
