"""Fragmentation of a pool's free GPUs, and the replicas that still fit."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from berth.core.values.amounts import MILLI
from pools.models import Node, NodePool
from pools.models.node import NodeState
from scheduler.models import Allocation, Reservation

MAX_FULL_LEVELS = 16


@dataclass(frozen=True, slots=True)
class FragmentationLevel:
    """Number of nodes with exactly `gpus` free GPUs, and how many replicas of that size would fit."""

    gpus: int
    nodes: int
    replicas: int


@dataclass(frozen=True, slots=True)
class Fragmentation:
    """Free GPU capacity of the ready nodes.

    `partial_milli` is the free part of partly allocated devices, in milli-GPU.
    """

    levels: tuple[FragmentationLevel, ...]
    nodes: int
    free_devices: int
    partial_milli: int

    @property
    def largest_fitting_level(self) -> FragmentationLevel | None:
        """Level of the largest replica that fits on one node, or None if no GPU is free."""
        fitting = [level for level in self.levels if level.gpus and level.replicas]
        return fitting[-1] if fitting else None


def measure_fragmentation(pool: NodePool) -> Fragmentation:
    sizes = dict(Node.objects.filter(pool=pool, state=NodeState.READY).values_list("pk", "gpus"))
    allocated: dict[tuple[int, int], int] = defaultdict(int)
    on_ready_nodes = {"node__pool": pool, "node__state": NodeState.READY}
    allocations = Allocation.objects.filter(released_at=None, **on_ready_nodes)
    reservations = Reservation.objects.filter(**on_ready_nodes)
    for rows in (allocations, reservations):
        for node_id, devices, milli in rows.values_list("node_id", "devices", "gpu_milli").order_by("pk"):
            for device in devices:
                allocated[node_id, device] += milli
    free = [sum(not allocated.get((node, device)) for device in range(gpus)) for node, gpus in sizes.items()]
    partial_milli = sum(max(0, MILLI - milli) for milli in allocated.values())
    return build_fragmentation(free, max(sizes.values(), default=pool.gpus_per_node), partial_milli)


def build_fragmentation(free: Sequence[int], max_gpus: int, partial_milli: int = 0) -> Fragmentation:
    """Compute the fragmentation from each node's number of free devices.

    `max_gpus` is the largest node's device count.
    """
    levels = [
        FragmentationLevel(
            gpus, sum(has == gpus for has in free), sum(has // gpus for has in free) if gpus else 0
        )
        for gpus in _levels_to_show(free, max_gpus)
    ]
    return Fragmentation(tuple(levels), len(free), sum(free), partial_milli)


def _levels_to_show(free: Iterable[int], max_gpus: int) -> list[int]:
    """Return the numbers of free GPUs to show: all for small nodes, and a selection for large nodes."""
    if max_gpus <= MAX_FULL_LEVELS:
        return list(range(max_gpus + 1))
    powers = {1 << bit for bit in range(max_gpus.bit_length()) if 1 << bit <= max_gpus}
    return sorted({0, max_gpus, *powers, *free})
