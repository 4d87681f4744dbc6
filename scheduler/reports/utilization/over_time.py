"""Allocated and used resources over time, by minute and hour."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from django.conf import settings
from django.db.models import F, FloatField, Func, IntegerField, Max, Min, Q, Sum, Value
from django.db.models.expressions import Combinable
from django.db.models.functions import Coalesce, Extract, Greatest, Least, NullIf

from pools.models import NodePool
from scheduler.models import UtilizationPoint
from scheduler.reports.usage.pool_hours import hourly_allocations
from scheduler.reports.utilization.storage import HOUR, MINUTE

MINUTE_STEP_LIMIT = timedelta(hours=6)  # longer periods have one point per hour
LONGEST = timedelta(days=366)
GPU_HOURS = 1000.0 * HOUR
ALLOCATION = "pod__allocation__"
DEVICES = Func(F(f"{ALLOCATION}devices"), function="cardinality", output_field=IntegerField())


@dataclass(frozen=True, slots=True)
class MeanUtilization:
    """Time-weighted mean of the total over all measured pods, in one minute or hour.

    A value is None if it was not measured.
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
    """GPU-hours of one hour, which may be incomplete.

    `measured` is the part of `allocated` whose utilization is known, and `used` is `measured` times that
    utilization.
    """

    at: datetime
    total: float
    allocated: float
    measured: float
    used: float
    begin: datetime  # time at which the first node was added, if within this hour, or else `at`


@dataclass(frozen=True, slots=True)
class MeanGpus:
    """Mean number of GPUs in one hour, counting only the time since the first node was added."""

    at: datetime
    total: float
    allocated: float
    measured: float
    used: float


def choose_step(since: datetime, until: datetime, now: datetime) -> int:
    """Return the finest stored step, in seconds, that yields a readable number of points."""
    retention = timedelta(days=settings.BERTH_KEEP_DAYS["utilization by minute"])
    return MINUTE if until - since <= MINUTE_STEP_LIMIT and since >= now - retention else HOUR


def utilization_points(
    pod_filter: Q, since: datetime, until: datetime, step: int, *, existed_since: datetime | None = None
) -> list[MeanUtilization]:
    """Return the mean utilization of the pods that match `pod_filter`, oldest first.

    Periods without measurements are omitted. If `existed_since` is set, time without allocations also counts.
    """
    rows = UtilizationPoint.objects.filter(
        pod_filter, step=step, at__gte=_floor_to_step(since, step), at__lt=until
    )
    begin = Greatest(F(f"{ALLOCATION}bound_at"), F("at"))
    end = Least(
        Coalesce(F(f"{ALLOCATION}released_at"), Value(until)), F("at") + timedelta(seconds=step), Value(until)
    )
    rows = rows.annotate(begin=begin, end=end).filter(end__gt=F("begin"))
    held = Extract(F("end") - F("begin"), "epoch")
    measured = NullIf(F("seconds"), Value(0.0))

    def weighted_sum(amount: Combinable | str) -> Sum:
        """Return the sum of an amount, weighted by the seconds in which the pod held its allocation."""
        return Sum((F(amount) if isinstance(amount, str) else amount) * held, output_field=FloatField())

    sums = rows.order_by().values("at").annotate(
        first=Min("begin"), last=Max("end"),
        allocated_gpu=weighted_sum(F(f"{ALLOCATION}gpu_milli") * DEVICES),
        allocated_cpu=weighted_sum(f"{ALLOCATION}cpu_milli"),
        allocated_memory=weighted_sum(f"{ALLOCATION}memory_mib"),
        allocated_gpu_memory=weighted_sum(
            F("pod__node__gpu_memory_mib") * F(f"{ALLOCATION}gpu_milli") * DEVICES
        ),
        cpu=weighted_sum(F("cpu_milli_seconds") / measured),
        memory=weighted_sum("memory_mib"),
        measured_milli=weighted_sum(F("gpu_milli_seconds") / measured),
        busy=weighted_sum(F("gpu_busy_milli_seconds") / measured),
        gpu_memory=weighted_sum("gpu_memory_mib"),
    )  # fmt: skip
    points = []
    for row in sums.order_by("at"):
        begin_at, end_at = row["first"], row["last"]
        if existed_since is not None:
            begin_at = min(begin_at, max(existed_since, row["at"]))
            end_at = max(end_at, min(until, row["at"] + timedelta(seconds=step)))
        points.append(_mean_point(row, (end_at - begin_at).total_seconds()))
    return points


def _mean_point(sums: Mapping[str, Any], seconds: float) -> MeanUtilization:
    def rounded_mean(name: str) -> int:
        return round((sums[name] or 0) / seconds)

    return MeanUtilization(
        at=sums["at"],
        allocated_gpu_milli=rounded_mean("allocated_gpu"),
        allocated_cpu_milli=rounded_mean("allocated_cpu"),
        allocated_memory_mib=rounded_mean("allocated_memory"),
        allocated_gpu_memory_mib=rounded_mean("allocated_gpu_memory") // 1000,
        cpu_milli=rounded_mean("cpu"),
        memory_mib=rounded_mean("memory"),
        measured_gpu_milli=rounded_mean("measured_milli"),
        gpu_milli=rounded_mean("busy") if sums["measured_milli"] else None,
        gpu_memory_mib=None if sums["gpu_memory"] is None else rounded_mean("gpu_memory"),
    )


def hourly_utilization(pools: Iterable[NodePool], now: datetime, hours: int) -> list[UtilizationHour]:
    """Return all tenants' allocated and used GPU-hours in each of the last `hours` hours, oldest first."""
    selected_pools = list(pools)
    allocated = hourly_allocations(selected_pools, now, hours)
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

    The mean covers the time since the start of the hour. If the first node was added later, the mean covers
    the time since then.
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
