"""Hourly totals of a pool's existing and allocated GPU-hours."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from django.db.models import Avg, Q

from pools.capacity_history import capacity_over_time
from pools.engine.timeline import TimelinePoint
from pools.models import Node, NodePool
from projects.actor import Actor
from scheduler.reports.usage.report import ReportStep, UsageDimension, UsageRequest, usage_report

HOUR = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class PoolHour:
    """A pool's GPU-hours in one hour.

    The current hour is incomplete, and the pool's first hour begins when its first node was added.
    """

    at: datetime
    allocated: float
    total: float
    begin: datetime


def hourly_allocations(pools: Iterable[NodePool], now: datetime, hours: int) -> list[PoolHour]:
    """Return all tenants' GPU-hours in each of the last `hours` hours, oldest first."""
    selected_pools = list(pools)
    first = now.astimezone(UTC).replace(minute=0, second=0, microsecond=0) - (hours - 1) * HOUR
    allocated = _allocated_gpu_hours({pool.name for pool in selected_pools}, first, now)
    gpus = _gpus_per_node(selected_pools, first)
    totals = [0.0] * hours
    first_node = now
    for pool in selected_pools:
        points = capacity_over_time(pool, now=now, span=now - first)
        first_node = min(first_node, _first_node_time(points, now))
        for number, nodes in enumerate(_node_hours(points, first, now, hours)):
            totals[number] += nodes * gpus.get(pool.pk, pool.gpus_per_node)
    starts = [first + number * HOUR for number in range(hours)]
    was_used = any(gpu_hours for at, gpu_hours in allocated.items() if at + HOUR <= first_node)
    # A node may leave the capacity history before all of its pods have ended.
    return [
        PoolHour(
            at,
            allocated.get(at, 0.0),
            max(totals[number], allocated.get(at, 0.0)),
            begin=first_node if at < first_node < at + HOUR and not was_used else at,
        )
        for number, at in enumerate(starts)
    ]


def _gpus_per_node(pools: Sequence[NodePool], first: datetime) -> dict[int, float]:
    nodes = Node.objects.filter(Q(ended_at=None) | Q(ended_at__gte=first), pool__in=pools)
    return dict(nodes.values_list("pool_id").annotate(average=Avg("gpus")).order_by("pool_id"))


def _allocated_gpu_hours(pools: set[str], first: datetime, now: datetime) -> dict[datetime, float]:
    sums: dict[datetime, float] = {}
    request = UsageRequest(first, now, group_by=(UsageDimension.POOL,), step=ReportStep.HOUR)
    for row in usage_report(Actor.system("overview"), request, now):
        if row.at is not None and row.names[UsageDimension.POOL] in pools:
            sums[row.at] = sums.get(row.at, 0.0) + row.gpu_hours
    return sums


def _first_node_time(points: Sequence[TimelinePoint], now: datetime) -> datetime:
    """Return the time of the first point with nodes, or `now` if there is no such point."""
    times = (point.at for point in points if point.current + point.draining)
    return min(now, datetime.fromtimestamp(next(times, now.timestamp()), UTC))


def _node_hours(points: Sequence[TimelinePoint], first: datetime, now: datetime, hours: int) -> list[float]:
    """Return the node-hours in each hour. Each point's node count applies until the next point."""
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
