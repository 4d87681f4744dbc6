"""Total and allocated GPU-hours in each hour."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from pools.capacity_history import capacity_over_time
from pools.engine.timeline import Point
from pools.models import NodePool
from projects.acting import Acting
from scheduler.reports.usage.report import Dimension, Step, UsageRequest, report

HOUR = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Hour:
    """GPU-hours in one hour, or in the current hour so far."""

    at: datetime
    allocated: float
    total: float


def allocation_course(pools: Iterable[NodePool], now: datetime, hours: int) -> list[Hour]:
    """Return the last hours, oldest first, for the workloads of all tenants."""
    wanted = list(pools)
    first = now.astimezone(UTC).replace(minute=0, second=0, microsecond=0) - (hours - 1) * HOUR
    held = _allocated_gpu_hours({pool.name for pool in wanted}, first, now)
    totals = [0.0] * hours
    for pool in wanted:
        points = capacity_over_time(pool, now=now, span=now - first)
        for number, nodes in enumerate(_node_hours(points, first, now, hours)):
            totals[number] += nodes * pool.gpus_per_node
    starts = [first + number * HOUR for number in range(hours)]
    # A pod may run longer than the capacity history lists its node.
    return [
        Hour(at, held.get(at, 0.0), max(totals[number], held.get(at, 0.0)))
        for number, at in enumerate(starts)
    ]


def _allocated_gpu_hours(pools: set[str], first: datetime, now: datetime) -> dict[datetime, float]:
    sums: dict[datetime, float] = {}
    request = UsageRequest(first, now, group_by=(Dimension.POOL,), step=Step.HOUR)
    for row in report(Acting.system("overview"), request, now):
        if row.at is not None and row.names[Dimension.POOL] in pools:
            sums[row.at] = sums.get(row.at, 0.0) + row.gpu_hours
    return sums


def _node_hours(points: Sequence[Point], first: datetime, now: datetime, hours: int) -> list[float]:
    """Return the node-hours in each hour. A point is valid until the next point."""
    sums = [0.0] * hours
    begin = first.timestamp()
    ends = [point.at for point in points[1:]] + [now.timestamp()]
    for point, end in zip(points, ends, strict=True):
        nodes = point.current + point.draining
        at = max(point.at, begin)
        while nodes and at < end:
            number = int((at - begin) // 3600)
            until = min(end, begin + (number + 1) * 3600)
            if number < hours:
                sums[number] += nodes * (until - at) / 3600
            at = until
    return sums
