"""Current allocation and utilization of pods, workloads, nodes and pools."""

import uuid
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.models import QuerySet

from pools.models import Node, NodePool
from pools.models.node import HOSTING
from projects.queries.idle_gpus import MAX_MEASUREMENT_AGE, RUNNING_STATES
from scheduler.models import Allocation, NodeUtilization
from scheduler.reports.utilization.readings import DeviceMeasurement

MILLI = 1000


@dataclass(frozen=True, slots=True)
class Utilization:
    """Allocated and used resources of one or more pods.

    None means not measured. `measured_gpu_milli` is the measured part of the allocated GPUs.
    """

    at: datetime | None = None
    pods: int = 0
    measured: int = 0
    allocated_gpu_milli: int = 0
    allocated_cpu_milli: int = 0
    allocated_memory_mib: int = 0
    allocated_gpu_memory_mib: int = 0
    measured_gpu_milli: int = 0
    gpu_milli: int | None = None
    gpu_memory_mib: int | None = None
    cpu_milli: int | None = None
    memory_mib: int | None = None

    @property
    def busy_percent(self) -> float | None:
        if self.gpu_milli is None or not self.measured_gpu_milli:
            return None
        return round(100 * self.gpu_milli / self.measured_gpu_milli, 1)


@dataclass(frozen=True, slots=True)
class DeviceMeasurements:
    """Measurements of one GPU of a node."""

    index: int
    busy_milli: int | None
    memory_mib: int | None
    shared: bool = False  # True if the pod has only part of the device; measurements cover the whole device


@dataclass(frozen=True, slots=True)
class PodSummary:
    pod_id: uuid.UUID
    workload_id: uuid.UUID
    role: str
    index: int
    run: int
    node_id: int
    node: str
    pool: str
    use: Utilization
    devices: tuple[DeviceMeasurements, ...]

    @property
    def name(self) -> str:
        return f"{self.role}-{self.index}"


COLUMNS = (
    "pod_id", "pod__workload_id", "pod__role", "pod__index", "pod__run", "node_id", "node__name",
    "node__pool__name", "node__gpu_memory_mib", "devices", "gpu_milli", "cpu_milli", "memory_mib",
    "pod__use__at", "pod__use__cpu_milli", "pod__use__memory_mib", "pod__use__devices",
)  # fmt: skip


def running_allocations() -> QuerySet[Allocation]:
    return Allocation.objects.filter(released_at=None, pod__state__in=RUNNING_STATES)


def summarize_pods(
    allocations: QuerySet[Allocation], now: datetime, max_age: timedelta = MAX_MEASUREMENT_AGE
) -> list[PodSummary]:
    """Return the utilization of pods, ordered by run, rank and role.

    Measurements older than `max_age` are ignored.
    """
    rows = allocations.order_by("pod__run", "pod__rank", "pod__role", "pod__index", "pod_id")
    return [_pod_utilization(row, now - max_age) for row in rows.values_list(*COLUMNS)]


def sum_utilization(uses: Iterable[Utilization]) -> Utilization:
    """Return the sum over several pods. An amount is None if it was not measured for any pod."""
    uses = list(uses)
    read = [use.at for use in uses if use.at is not None]
    summed_fields = ("pods", "measured", "allocated_gpu_milli", "allocated_cpu_milli", "allocated_memory_mib",
            "allocated_gpu_memory_mib", "measured_gpu_milli")  # fmt: skip
    used = ("gpu_milli", "gpu_memory_mib", "cpu_milli", "memory_mib")
    values: dict[str, Any] = {name: sum(getattr(use, name) for use in uses) for name in summed_fields}
    values |= {name: _sum_or_none(getattr(use, name) for use in uses) for name in used}
    return Utilization(at=max(read, default=None), **values)


def utilization_by_pool(pools: Iterable[NodePool], now: datetime) -> dict[str, Utilization]:
    """Return the utilization of the pods in each pool, keyed by pool name. Pools without pods are omitted."""
    by_pool: dict[str, list[Utilization]] = defaultdict(list)
    for pod in summarize_pods(running_allocations().filter(node__pool__in=list(pools)), now):
        by_pool[pod.pool].append(pod.use)
    return {name: sum_utilization(uses) for name, uses in by_pool.items()}


def devices_by_node(
    nodes: Sequence[Node], now: datetime, max_age: timedelta = MAX_MEASUREMENT_AGE
) -> dict[int, tuple[DeviceMeasurements, ...]]:
    """Return each node's measured GPUs, omitting nodes without measurements."""
    rows = NodeUtilization.objects.filter(node__in=nodes, at__gte=now - max_age)
    return {row.node_id: _measured_devices(range(len(row.devices)), row.devices) for row in rows}


def hosting_nodes(pools: Iterable[NodePool]) -> QuerySet[Node, tuple[int, int]]:
    """Return the pool ID and GPU count of each node that can host pods."""
    rows = Node.objects.filter(pool__in=list(pools), state__in=HOSTING).order_by("pk")
    return rows.values_list("pool_id", "gpus")


def _pod_utilization(row: Sequence[Any], since: datetime) -> PodSummary:
    values = dict(zip(COLUMNS, row, strict=True))
    fresh = values["pod__use__at"] is not None and values["pod__use__at"] >= since
    read: Sequence[DeviceMeasurement] = values["pod__use__devices"] if fresh else ()
    devices = _measured_devices(values["devices"], read, shared=values["gpu_milli"] < MILLI)
    measured = [device.busy_milli for device in devices if device.busy_milli is not None]
    use = Utilization(
        at=values["pod__use__at"] if fresh else None,
        pods=1,
        measured=int(fresh),
        allocated_gpu_milli=values["gpu_milli"] * len(values["devices"]),
        allocated_cpu_milli=values["cpu_milli"],
        allocated_memory_mib=values["memory_mib"],
        allocated_gpu_memory_mib=values["node__gpu_memory_mib"]
        * values["gpu_milli"]
        * len(values["devices"])
        // MILLI,
        measured_gpu_milli=values["gpu_milli"] * len(measured),
        gpu_milli=round(values["gpu_milli"] * sum(measured) / MILLI) if measured else None,
        gpu_memory_mib=_sum_or_none(device.memory_mib for device in devices),
        cpu_milli=values["pod__use__cpu_milli"] if fresh else None,
        memory_mib=values["pod__use__memory_mib"] if fresh else None,
    )
    return PodSummary(
        values["pod_id"], values["pod__workload_id"], values["pod__role"], values["pod__index"],
        values["pod__run"], values["node_id"], values["node__name"], values["node__pool__name"], use, devices,
    )  # fmt: skip


def _measured_devices(
    numbers: Iterable[int], read: Sequence[DeviceMeasurement], *, shared: bool = False
) -> tuple[DeviceMeasurements, ...]:
    return tuple(
        DeviceMeasurements(number, *(read[place] if place < len(read) else (None, None)), shared=shared)
        for place, number in enumerate(numbers)
    )


def _sum_or_none(values: Iterable[int | None]) -> int | None:
    measured = [value for value in values if value is not None]
    return sum(measured) if measured else None
