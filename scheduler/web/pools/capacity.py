"""GPU capacity of pools: total, allocated, free and booting."""

from collections.abc import Iterable
from dataclasses import dataclass

from django.db.models import Sum

from berth.core.amounts import MILLI
from berth.server.web.charts.bars import Bar, stacked_bar
from pools.models import Node, NodePool
from pools.models.node import HOSTING, PENDING
from scheduler.web.quotas.queue_rows import allocated_by_project


@dataclass(frozen=True, slots=True)
class Capacity:
    """GPU capacity in milli-GPU."""

    total: int
    allocated: int
    pending: int

    @property
    def free(self) -> int:
        return max(0, self.total - self.allocated)

    @property
    def bar(self) -> Bar:
        whole = self.total + self.pending
        label = f"{self.allocated // MILLI} of {self.total // MILLI} GPUs allocated"
        return stacked_bar(
            [(self.allocated, "used"), (self.free, "track"), (self.pending, "requested")], whole, label
        )


def pool_capacity(pools: Iterable[NodePool]) -> Capacity:
    selected_pools = list(pools)
    nodes = Node.objects.filter(pool__in=selected_pools)
    return Capacity(
        total=_gpus(nodes.filter(state__in=HOSTING).aggregate(n=Sum("gpus"))["n"]),
        allocated=sum(allocated_by_project(selected_pools).values()),
        pending=_gpus(nodes.filter(state__in=PENDING).aggregate(n=Sum("gpus"))["n"]),
    )


def _gpus(count: int | None) -> int:
    return MILLI * (count or 0)
