"""Current allocation and utilization of pods, workloads, nodes and pools."""

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import QuerySet

from pools.models import Node, NodePool
from pools.models.node import HOSTING
from projects.idle_gpus import FRESH, RUNS
from scheduler.models import Allocation, NodeUtilization
from scheduler.reports.utilization.readings import OfDevice

MILLI = 1000


@dataclass(frozen=True, slots=True)
class Use:
    """Allocated and used resources of one or more pods. None: not measured.

    `measured_gpu_milli` is the part of the allocated GPUs with measured utilization.
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
        """Utilization of the measured GPUs in percent."""
        if self.gpu_milli is None or not self.measured_gpu_milli:
            return None
        return round(100 * self.gpu_milli / self.measured_gpu_milli, 1)


@dataclass(frozen=True, slots=True)
class Device:
    """A GPU's index on the node, and its measurements."""

    index: int
    busy_milli: int | None
    memory_mib: int | None
    shared: bool = False  # partly allocated to the pod; measurements cover the whole device


@dataclass(frozen=True, slots=True)
class OfPod:
    pod_id: uuid.UUID
    workload_id: uuid.UUID
    role: str
    index: int
    run: int
    node_id: int
    node: str
    pool: str
    use: Use
    devices: tuple[Device, ...]

    @property
    def name(self) -> str:
        return f"{self.role}-{self.index}"


COLUMNS = (
    "pod_id", "pod__workload_id", "pod__role", "pod__index", "pod__run", "node_id", "node__name",
    "node__pool__name", "node__gpu_memory_mib", "devices", "gpu_milli", "cpu_milli", "memory_mib",
    "pod__use__at", "pod__use__cpu_milli", "pod__use__memory_mib", "pod__use__devices",
)  # fmt: skip


def running() -> QuerySet[Allocation]:
    """Return the allocations of running pods."""
    return Allocation.objects.filter(released_at=None, pod__state__in=RUNS)


def of_pods(held: QuerySet[Allocation], now: datetime) -> list[OfPod]:
    """Return the utilization of pods, ordered by run, rank and role."""
    rows = held.order_by("pod__run", "pod__rank", "pod__role", "pod__index", "pod_id")
    return [_pod_utilization(row, now) for row in rows.values_list(*COLUMNS)]


def together(uses: Iterable[Use]) -> Use:
    """Return the sum of all uses. A value is None if no use has a measurement."""
    uses = list(uses)
    read = [use.at for use in uses if use.at is not None]
    held = ("pods", "measured", "allocated_gpu_milli", "allocated_cpu_milli", "allocated_memory_mib",
            "allocated_gpu_memory_mib", "measured_gpu_milli")  # fmt: skip
    used = ("gpu_milli", "gpu_memory_mib", "cpu_milli", "memory_mib")
    values: dict[str, Any] = {name: sum(getattr(use, name) for use in uses) for name in held}
    values |= {name: _sum_measured(getattr(use, name) for use in uses) for name in used}
    return Use(at=max(read, default=None), **values)


def devices_of(nodes: Sequence[Node], now: datetime) -> dict[int, tuple[Device, ...]]:
    """Return the measured GPUs by node. Nodes without measurements are omitted."""
    rows = NodeUtilization.objects.filter(node__in=nodes, at__gte=now - FRESH)
    return {row.node_id: _devices(range(len(row.devices)), row.devices) for row in rows}


def hosting(pools: Iterable[NodePool]) -> QuerySet[Node, tuple[int, int]]:
    """Return the pool id and GPU count of each node that may have pods."""
    rows = Node.objects.filter(pool__in=list(pools), state__in=HOSTING).order_by("pk")
    return rows.values_list("pool_id", "gpus")


def _pod_utilization(row: Sequence[Any], now: datetime) -> OfPod:
    values = dict(zip(COLUMNS, row, strict=True))
    fresh = values["pod__use__at"] is not None and values["pod__use__at"] >= now - FRESH
    read: Sequence[OfDevice] = values["pod__use__devices"] if fresh else ()
    devices = _devices(values["devices"], read, shared=values["gpu_milli"] < MILLI)
    measured = [device.busy_milli for device in devices if device.busy_milli is not None]
    use = Use(
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
        gpu_memory_mib=_sum_measured(device.memory_mib for device in devices),
        cpu_milli=values["pod__use__cpu_milli"] if fresh else None,
        memory_mib=values["pod__use__memory_mib"] if fresh else None,
    )
    return OfPod(
        values["pod_id"], values["pod__workload_id"], values["pod__role"], values["pod__index"],
        values["pod__run"], values["node_id"], values["node__name"], values["node__pool__name"], use, devices,
    )  # fmt: skip


def _devices(numbers: Iterable[int], read: Sequence[OfDevice], *, shared: bool = False) -> tuple[Device, ...]:
    return tuple(
        Device(number, *(read[place] if place < len(read) else (None, None)), shared=shared)
        for place, number in enumerate(numbers)
    )


def _sum_measured(values: Iterable[int | None]) -> int | None:
    measured = [value for value in values if value is not None]
    return sum(measured) if measured else None
