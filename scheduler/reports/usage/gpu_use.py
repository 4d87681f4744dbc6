"""Measured utilization of allocated GPUs, by department, project, user or pool."""

from collections.abc import Mapping
from dataclasses import dataclass

from django.db.models import Q, Sum

from projects.access import is_platform_admin, visible_projects
from projects.actor import Actor
from scheduler.models import UtilizationPoint
from scheduler.reports.usage.report import UsageDimension, UsageRequest, floor_to_hour
from scheduler.reports.utilization.storage import HOUR

GPU_HOURS = 1000.0 * HOUR
NAME_FIELDS = {
    UsageDimension.DEPARTMENT: "pod__workload__project__department__name",
    UsageDimension.PROJECT: "pod__workload__project__name",
    UsageDimension.USER: "pod__workload__submitted_by__username",
    UsageDimension.POOL: "pod__node__pool__name",
}


@dataclass(frozen=True, slots=True)
class MeasuredGpuHours:
    """Measured GPU-hours, and how many of them were used."""

    measured: float
    busy: float

    @property
    def idle(self) -> float:
        return max(0.0, self.measured - self.busy)

    @property
    def percent(self) -> float | None:
        return 100 * self.busy / self.measured if self.measured else None


def gpu_utilization_by_name(
    actor: Actor, request: UsageRequest, by: UsageDimension
) -> Mapping[str, MeasuredGpuHours]:
    """Return the measured GPU-hours of visible projects, keyed by name.

    Names without measurements are omitted.
    """
    chosen = Q(step=HOUR, at__gte=floor_to_hour(request.since), at__lt=request.until)
    for dimension, name in request.only.items():
        chosen &= Q(**{NAME_FIELDS[dimension]: name})
    if not is_platform_admin(actor):
        chosen &= Q(pod__workload__project__in=visible_projects(actor))
    sums = (
        UtilizationPoint.objects.filter(chosen)
        .order_by()
        .values_list(NAME_FIELDS[by])
        .annotate(Sum("gpu_milli_seconds"), Sum("gpu_busy_milli_seconds"))
    )
    return {
        name or "": MeasuredGpuHours(measured / GPU_HOURS, busy / GPU_HOURS)
        for name, measured, busy in sums
        if measured
    }


def total_gpu_hours(uses: Mapping[str, MeasuredGpuHours]) -> MeasuredGpuHours:
    return MeasuredGpuHours(
        sum(use.measured for use in uses.values()), sum(use.busy for use in uses.values())
    )
