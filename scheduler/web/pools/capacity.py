"""GPU capacity of pools: total, allocated, reserved, free and booting."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from django.db.models import Sum

from berth.core.amounts import MILLI
from berth.server.web.charts.bars import Bar, stacked_bar
from pools.models import Node, NodePool
from pools.models.node import HOSTING, PENDING
from scheduler.models import Allocation, Reservation
from scheduler.reports.queues.queue_totals import GPU, totals_by_queue


@dataclass(frozen=True, slots=True)
class Capacity:
    """GPU capacity in milli-GPU.

    `reserved` includes GPUs of booting nodes, and GPUs on which evicted pods still stop. `reserved_idle` is
    the part on idle GPUs of ready nodes.
    """

    total: int
    allocated: int
    pending: int
    reserved: int = 0
    reserved_idle: int = 0

    @property
    def free(self) -> int:
        return max(0, self.total - self.allocated - self.reserved_idle)

    @property
    def bar(self) -> Bar:
        whole = self.total + self.pending
        label = f"{self.allocated // MILLI} of {self.total // MILLI} GPUs allocated"
        if self.reserved:
            label += f", {self.reserved // MILLI} reserved"
        reserved_booting = min(self.pending, max(0, self.reserved - self.reserved_idle))
        return stacked_bar(
            [
                (self.allocated, "used"),
                (self.reserved_idle, "reserved"),
                (self.free, "track"),
                (reserved_booting, "reserved"),
                (self.pending - reserved_booting, "requested"),
            ],
            whole,
            label,
        )


def pool_capacity(pools: Iterable[NodePool]) -> Capacity:
    selected_pools = list(pools)
    nodes = Node.objects.filter(pool__in=selected_pools)
    totals = [
        one for (_, (_, project)), one in totals_by_queue(selected_pools).items() if project is not None
    ]
    return Capacity(
        total=_gpus(nodes.filter(state__in=HOSTING).aggregate(n=Sum("gpus"))["n"]),
        allocated=sum(one.allocated[GPU] for one in totals),
        pending=_gpus(nodes.filter(state__in=PENDING).aggregate(n=Sum("gpus"))["n"]),
        reserved=sum(one.reserved[GPU] for one in totals),
        reserved_idle=_reserved_idle(selected_pools) if any(one.reserved[GPU] for one in totals) else 0,
    )


def _reserved_idle(pools: list[NodePool]) -> int:
    """Return the reserved milli-GPU on parts of devices that are not allocated to a pod."""
    reservations = Reservation.objects.filter(node__pool__in=pools, node__state__in=HOSTING)
    reserved = _by_device(reservations.values_list("node_id", "devices", "gpu_milli"))
    allocations = Allocation.objects.filter(node__in={node for node, _ in reserved}, released_at__isnull=True)
    allocated = _by_device(allocations.values_list("node_id", "devices", "gpu_milli"))
    return sum(max(0, min(milli, MILLI - allocated[device])) for device, milli in reserved.items())


def _by_device(rows: Iterable[tuple[int, list[int], int]]) -> dict[tuple[int, int], int]:
    result: dict[tuple[int, int], int] = defaultdict(int)
    for node, devices, milli in rows:
        for device in devices:
            result[node, device] += milli
    return result


def _gpus(count: int | None) -> int:
    return MILLI * (count or 0)
