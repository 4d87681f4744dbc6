"""GPU capacity of pools: total, allocated, free and booting."""

from collections.abc import Iterable
from dataclasses import dataclass

from django.db.models import Sum

from berth.core.amounts import MILLI
from berth.server.web.charts.bars import Bar, stacked
from pools.models import Node, NodePool
from pools.models.node import HOSTING, PENDING
from scheduler.web.quotas.queue_rows import held_by_project


@dataclass(frozen=True, slots=True)
class Capacity:
    """Capacity in milli-GPU."""

    total: int
    allocated: int
    coming: int

    @property
    def idle(self) -> int:
        return max(0, self.total - self.allocated)

    @property
    def bar(self) -> Bar:
        whole = self.total + self.coming
        label = f"{self.allocated // MILLI} of {self.total // MILLI} GPUs allocated"
        return stacked(
            [(self.allocated, "used"), (self.idle, "track"), (self.coming, "wanted")], whole, label
        )


def total_gpus(pools: Iterable[NodePool]) -> Capacity:
    wanted = list(pools)
    nodes = Node.objects.filter(pool__in=wanted)
    return Capacity(
        total=_gpus(nodes.filter(state__in=HOSTING).aggregate(n=Sum("gpus"))["n"]),
        allocated=sum(held_by_project(wanted).values()),
        coming=_gpus(nodes.filter(state__in=PENDING).aggregate(n=Sum("gpus"))["n"]),
    )


def _gpus(count: int | None) -> int:
    return MILLI * (count or 0)
