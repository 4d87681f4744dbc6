"""GPU capacity of pools: total, allocated, reserved, free and booting."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from django.db.models import Sum

from berth.core.values.amounts import MILLI
from berth.server.web.charts.bars import Bar, stacked_bar
from pools.models import Node, NodePool
from pools.models.node import HOSTING, PENDING, NodeState
from scheduler.models import Allocation, Reservation
from scheduler.reports.queues.queue_totals import GPU, totals_by_queue

CLOSED = (NodeState.CORDONED, NodeState.DRAINING)  # states of nodes that run pods, but accept no new pods


@dataclass(frozen=True, slots=True)
class Capacity:
    """GPU capacity in milli-GPU.

    `reserved` includes the GPUs of booting nodes and of pods that are still stopping. `closed` is the part of
    `total` on nodes that accept no new pods, and `closed_free` is the unallocated part of `closed`.
    """

    total: int
    allocated: int
    pending: int
    reserved: int = 0
    reserved_unallocated_gpus: int = 0
    closed: int = 0
    closed_free: int = 0

    def __add__(self, other: "Capacity") -> "Capacity":
        return Capacity(
            self.total + other.total,
            self.allocated + other.allocated,
            self.pending + other.pending,
            self.reserved + other.reserved,
            self.reserved_unallocated_gpus + other.reserved_unallocated_gpus,
            self.closed + other.closed,
            self.closed_free + other.closed_free,
        )

    @property
    def existing_gpus(self) -> int:
        """GPUs of nodes that can host pods, and of booting nodes."""
        return self.total + self.pending

    @property
    def ready(self) -> int:
        """GPUs of nodes that accept new pods."""
        return self.total - self.closed

    @property
    def booting_unreserved_gpus(self) -> int:
        return self.pending - self.booting_reserved_gpus

    @property
    def free(self) -> int:
        return max(0, self.total - self.allocated - self.reserved_unallocated_gpus)

    @property
    def ready_bar(self) -> Bar:
        """Bar that shows the GPUs of nodes that can host pods. The full width is `total`."""
        parts = [(self.allocated, "used"), (self.reserved_unallocated_gpus, "reserved"), (self.free, "track")]
        return stacked_bar(parts, self.total, self._bar_label)

    @property
    def booting_reserved_gpus(self) -> int:
        """Reserved GPUs of booting nodes."""
        return min(self.pending, max(0, self.reserved - self.reserved_unallocated_gpus))

    @property
    def reserved_gpus_on_hosting_nodes(self) -> int:
        """Reserved GPUs of nodes that can host pods."""
        return self.reserved - self.booting_reserved_gpus

    @property
    def bar(self) -> Bar:
        whole, booting_reserved_gpus = self.existing_gpus, self.booting_reserved_gpus
        return stacked_bar(
            [
                (self.allocated, "used"),
                (self.reserved_unallocated_gpus, "reserved"),
                (self.free, "track"),
                (booting_reserved_gpus, "reserved"),
                (self.pending - booting_reserved_gpus, "requested"),
            ],
            whole,
            self._bar_label,
        )

    @property
    def _bar_label(self) -> str:
        label = f"{self.allocated // MILLI} of {self.total // MILLI} GPUs allocated"
        return f"{label}, {self.reserved // MILLI} reserved" if self.reserved else label


def pool_capacity(pools: Iterable[NodePool]) -> Capacity:
    """Return the total capacity of all pools."""
    return sum(capacity_by_pool(pools).values(), start=Capacity(0, 0, 0))


def capacity_by_pool(pools: Iterable[NodePool]) -> dict[int, Capacity]:
    """Return each pool's capacity, keyed by pool ID."""
    selected_pools = list(pools)
    gpus = _gpus_by_state(selected_pools)
    allocated, reserved = Counter[int](), Counter[int]()
    for (pool, (_, project)), total in totals_by_queue(selected_pools).items():
        if project is not None:
            allocated[pool] += total.allocated[GPU]
            reserved[pool] += total.reserved[GPU]
    reserved_unallocated_gpus = (
        _count_reserved_unallocated_gpus(selected_pools) if reserved.total() else Counter[int]()
    )
    closed = Counter({pool.pk: sum(gpus[pool.pk, state] for state in CLOSED) for pool in selected_pools})
    closed_allocated = _allocated_gpus_on_closed_nodes(selected_pools) if closed.total() else Counter[int]()
    return {
        pool.pk: Capacity(
            total=sum(gpus[pool.pk, state] for state in HOSTING),
            allocated=allocated[pool.pk],
            pending=sum(gpus[pool.pk, state] for state in PENDING),
            reserved=reserved[pool.pk],
            reserved_unallocated_gpus=reserved_unallocated_gpus[pool.pk],
            closed=closed[pool.pk],
            closed_free=max(0, closed[pool.pk] - closed_allocated[pool.pk]),
        )
        for pool in selected_pools
    }


def _gpus_by_state(pools: list[NodePool]) -> Counter[tuple[int, str]]:
    rows = Node.objects.filter(pool__in=pools).order_by().values_list("pool_id", "state")
    return Counter({(pool, state): MILLI * gpus for pool, state, gpus in rows.annotate(n=Sum("gpus"))})


def _allocated_gpus_on_closed_nodes(pools: list[NodePool]) -> Counter[int]:
    """Return the allocated milli-GPU on cordoned and draining nodes, keyed by pool ID."""
    allocations = Allocation.objects.filter(
        node__pool__in=pools, node__state__in=CLOSED, released_at__isnull=True
    )
    result = Counter[int]()
    for pool, devices, milli in allocations.values_list("node__pool_id", "devices", "gpu_milli"):
        result[pool] += milli * len(devices)
    return result


def _count_reserved_unallocated_gpus(pools: list[NodePool]) -> Counter[int]:
    """Return the milli-GPU that are reserved but not allocated, keyed by pool ID."""
    reservations = Reservation.objects.filter(node__pool__in=pools, node__state__in=HOSTING)
    rows = list(reservations.values_list("node_id", "devices", "gpu_milli", "node__pool_id"))
    pool_of = {node: pool for node, _, _, pool in rows}
    reserved = _sum_by_device((node, devices, milli) for node, devices, milli, _ in rows)
    allocations = Allocation.objects.filter(node__in=pool_of, released_at__isnull=True)
    allocated = _sum_by_device(allocations.values_list("node_id", "devices", "gpu_milli"))
    result = Counter[int]()
    for device, milli in reserved.items():
        result[pool_of[device[0]]] += max(0, min(milli, MILLI - allocated[device]))
    return result


def _sum_by_device(rows: Iterable[tuple[int, list[int], int]]) -> dict[tuple[int, int], int]:
    result: dict[tuple[int, int], int] = defaultdict(int)
    for node, devices, milli in rows:
        for device in devices:
            result[node, device] += milli
    return result
