"""Fragmentation of a pool, and the replicas that would fit."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from berth.core.amounts import MILLI
from pools.models import Node, NodePool
from pools.models.node import NodeState
from scheduler.models import Allocation, Reservation

EVERY_LEVEL_UP_TO = 16


@dataclass(frozen=True, slots=True)
class Level:
    """Nodes with exactly `gpus` free GPUs, and the `replicas` of that size that would fit in the pool."""

    gpus: int
    nodes: int
    replicas: int


@dataclass(frozen=True, slots=True)
class Fragmentation:
    """Free devices on ready nodes: `whole` devices, and `parts` in milli-GPU of partly free devices."""

    levels: tuple[Level, ...]
    nodes: int
    whole: int
    parts: int

    @property
    def biggest(self) -> Level | None:
        """The level with the most free GPUs per node."""
        fitting = [level for level in self.levels if level.gpus and level.replicas]
        return fitting[-1] if fitting else None


def fragmentation_of(pool: NodePool) -> Fragmentation:
    sizes = dict(Node.objects.filter(pool=pool, state=NodeState.READY).values_list("pk", "gpus"))
    held: dict[tuple[int, int], int] = defaultdict(int)
    here = {"node__pool": pool, "node__state": NodeState.READY}
    allocations = Allocation.objects.filter(released_at=None, **here)
    reservations = Reservation.objects.filter(**here)
    for rows in (allocations, reservations):
        for node_id, devices, milli in rows.values_list("node_id", "devices", "gpu_milli").order_by("pk"):
            for device in devices:
                held[node_id, device] += milli
    free = [sum(not held.get((node, device)) for device in range(gpus)) for node, gpus in sizes.items()]
    parts = sum(max(0, MILLI - milli) for milli in held.values())
    return fragmentation(free, max(sizes.values(), default=pool.gpus_per_node), parts)


def fragmentation(free: Sequence[int], most: int, parts: int = 0) -> Fragmentation:
    """Return the fragmentation for each node's free devices. The largest node has `most` devices."""
    levels = [
        Level(gpus, sum(has == gpus for has in free), sum(has // gpus for has in free) if gpus else 0)
        for gpus in _levels(free, most)
    ]
    return Fragmentation(tuple(levels), len(free), sum(free), parts)


def _levels(free: Iterable[int], most: int) -> list[int]:
    """Return all levels, or, for large nodes, only levels that occur and powers of two."""
    if most <= EVERY_LEVEL_UP_TO:
        return list(range(most + 1))
    powers = {1 << bit for bit in range(most.bit_length()) if 1 << bit <= most}
    return sorted({0, most, *powers, *free})
