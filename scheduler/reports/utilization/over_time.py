"""Allocated and used resources over time, by minute and hour."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from django.conf import settings
from django.db.models import F, Func, IntegerField, Q, Sum, Value
from django.db.models.functions import NullIf

from pools.models import NodePool
from scheduler.models import UtilizationPoint
from scheduler.reports.usage.pool_hours import hourly_allocation
from scheduler.reports.utilization.storage import HOUR, MINUTE

MINUTE_STEP_LIMIT = timedelta(hours=6)  # longer periods have one point per hour
LONGEST = timedelta(days=366)
GPU_HOURS = 1000.0 * HOUR
ALLOCATION = "pod__allocation__"
DEVICES = Func(F(f"{ALLOCATION}devices"), function="cardinality", output_field=IntegerField())


@dataclass(frozen=True, slots=True)
class Point:
    """Totals over all measured pods at one time.

    Fields that begin with `allocated_` are the pods' allocations. None means not measured.
    """

    at: datetime
    allocated_gpu_milli: int
    allocated_cpu_milli: int
    allocated_memory_mib: int
    allocated_gpu_memory_mib: int
    cpu_milli: int
    memory_mib: int
    measured_gpu_milli: int
    gpu_milli: int | None
    gpu_memory_mib: int | None


@dataclass(frozen=True, slots=True)
class UtilizationHour:
    """GPU-hours of one hour, which may be the current, incomplete hour.

    `measured` is the part of `allocated` whose utilization was measured. `used` is the busy part of
    `measured`.
    """

    at: datetime
    total: float
    allocated: float
    measured: float
    used: float
    begin: datetime  # seconds of the hour since the first node was added


@dataclass(frozen=True, slots=True)
class MeanGpus:
    """Mean number of GPUs in one hour, limited to the time between the first node and now."""

    at: datetime
    total: float
    allocated: float
    measured: float
    used: float


def choose_step(since: datetime, until: datetime, now: datetime) -> int:
    """Return the finest stored step, in seconds, that yields a readable number of points."""
    retention = timedelta(days=settings.BERTH_KEEP_DAYS["utilization by minute"])
    return MINUTE if until - since <= MINUTE_STEP_LIMIT and since >= now - retention else HOUR


def utilization_points(pod_filter: Q, since: datetime, until: datetime, step: int) -> list[Point]:
    """Return the utilization points for the pods that match `pod_filter`, oldest first.

    Periods without measurements are omitted.
    """
    rows = UtilizationPoint.objects.filter(
        pod_filter, step=step, at__gte=_floor_to_step(since, step), at__lt=until
    )
    seconds = NullIf(F("seconds"), Value(0.0))
    sums = rows.order_by().values("at").annotate(
        held_gpu=Sum(F(f"{ALLOCATION}gpu_milli") * DEVICES),
        held_cpu=Sum(f"{ALLOCATION}cpu_milli"),
        held_memory=Sum(f"{ALLOCATION}memory_mib"),
        held_gpu_memory=Sum(F("pod__node__gpu_memory_mib") * F(f"{ALLOCATION}gpu_milli") * DEVICES),
        cpu=Sum(F("cpu_milli_seconds") / seconds),
        memory=Sum("memory_mib"),
        known_milli=Sum(F("gpu_milli_seconds") / seconds),
        busy=Sum(F("gpu_busy_milli_seconds") / seconds),
        gpu_memory=Sum("gpu_memory_mib"),
    )  # fmt: skip
    return [
        Point(
            at=row["at"],
            allocated_gpu_milli=row["held_gpu"] or 0,
            allocated_cpu_milli=row["held_cpu"] or 0,
            allocated_memory_mib=row["held_memory"] or 0,
            allocated_gpu_memory_mib=(row["held_gpu_memory"] or 0) // 1000,
            cpu_milli=round(row["cpu"] or 0),
            memory_mib=row["memory"] or 0,
            measured_gpu_milli=round(row["known_milli"] or 0),
            gpu_milli=round(row["busy"]) if row["known_milli"] else None,
            gpu_memory_mib=row["gpu_memory"],
        )
        for row in sums.order_by("at")
    ]


def hourly_utilization(pools: Iterable[NodePool], now: datetime, hours: int) -> list[UtilizationHour]:
    """Return the used GPU-hours of all tenants in each of the last `hours` hours, oldest first."""
    selected_pools = list(pools)
    allocated = hourly_allocation(selected_pools, now, hours)
    rows = UtilizationPoint.objects.filter(
        step=HOUR, at__gte=allocated[0].at, at__lt=now, pod__node__pool__in=selected_pools
    ).order_by()
    sums = rows.values_list("at").annotate(Sum("gpu_milli_seconds"), Sum("gpu_busy_milli_seconds"))
    by_hour = {at: (measured / GPU_HOURS, busy / GPU_HOURS) for at, measured, busy in sums}
    result = []
    for hour in allocated:
        measured, busy = (min(hours_used, hour.allocated) for hours_used in by_hour.get(hour.at, (0.0, 0.0)))
        result.append(UtilizationHour(hour.at, hour.total, hour.allocated, measured, busy, hour.begin))
    return result


def mean_gpus(hour: UtilizationHour, now: datetime) -> MeanGpus:
    """Convert the GPU-hours of `hour` to mean numbers of GPUs.

    The divisor is the elapsed time since the start of the hour, or since the first node: 8 GPUs in the first
    ten minutes count as 8, not as 1.3.
    """
    end = min(now, hour.at + timedelta(seconds=HOUR))
    elapsed = (end - hour.begin).total_seconds() / HOUR
    if elapsed <= 0:
        return MeanGpus(hour.at, 0.0, 0.0, 0.0, 0.0)
    return MeanGpus(
        hour.at, hour.total / elapsed, hour.allocated / elapsed, hour.measured / elapsed, hour.used / elapsed
    )


def _floor_to_step(at: datetime, step: int) -> datetime:
    seconds = int(at.timestamp())
    return datetime.fromtimestamp(seconds - seconds % step, UTC)
