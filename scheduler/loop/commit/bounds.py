"""Recheck the limits and quotas of workloads with reservations."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from berth.core.values.amounts import RESOURCES, Amounts
from pools.models import NodePool
from projects.models import Quota, Workload
from scheduler.loop.observe.specs import ParsedSpec
from scheduler.models import Reservation
from scheduler.reports.queues.group_quotas import quotas_by_queue, sum_over_quota_groups
from scheduler.reports.queues.queue_totals import ZERO, Key, totals_by_queue

Bound = tuple[int | None, int | None, int | None]


def total_reserved_amounts(rows: Iterable[Reservation], spec: ParsedSpec) -> Amounts:
    total = Amounts()
    for row in rows:
        request = spec.roles[row.role].request
        total = total.plus(Amounts(row.gpu_milli * len(row.devices), request.cpu, request.memory_mib))
    return total


@dataclass(frozen=True)
class QueueBounds:
    """Quotas and allocations of all queues, read once for any number of workloads."""

    quotas: Mapping[Key, Quota]
    allocated: Mapping[Key, Sequence[int]]

    @classmethod
    def read_current(cls) -> "QueueBounds":
        quotas = quotas_by_queue()
        return cls(quotas, sum_over_quota_groups(_allocated_by_queue(), quotas))

    @cached_property
    def non_preemptible_allocations(self) -> Mapping[Key, Sequence[int]]:
        """Allocations of non-preemptible workloads, read when the first such workload is checked."""
        return sum_over_quota_groups(_allocated_by_queue(preemptible=False), self.quotas)

    def describe_exceeded_bound(self, workload: Workload, pool: NodePool, requested: Amounts) -> str:
        """Return a sentence about the first limit or quota that the request would exceed, or an
        empty string.
        """
        project = workload.project
        for name, owner in (
            (project.name, (None, project.pk)),
            (project.department.name, (project.department_id, None)),
        ):
            key = (pool.pk, owner)
            quota = self.quotas.get(key)
            resource = _exceeded_resource(self.allocated.get(key, ZERO), requested, _limit_bound(quota))
            if not resource and not workload.preemptible:
                allocated = self.non_preemptible_allocations.get(key, ZERO)
                resource = _exceeded_resource(allocated, requested, _quota_bound(quota))
            if resource:
                return f"{name} would exceed its {resource} limit."
        return ""


def _allocated_by_queue(*, preemptible: bool | None = None) -> dict[Key, Sequence[int]]:
    return {key: totals.allocated for key, totals in totals_by_queue(preemptible=preemptible).items()}


def _limit_bound(quota: Quota | None) -> Bound:
    """Return the queue's limit, or the lower of limit and quota if it may not borrow."""
    if quota is None:
        return (None, None, None)
    limit = (quota.limit_gpu_milli, quota.limit_cpu_milli, quota.limit_memory_mib)
    if quota.over_quota:
        return limit
    gpu, cpu, memory = (_tighter_bound(*pair) for pair in zip(limit, _quota_bound(quota), strict=True))
    return gpu, cpu, memory


def _quota_bound(quota: Quota | None) -> Bound:
    return (0, None, None) if quota is None else (quota.gpu_milli, quota.cpu_milli, quota.memory_mib)


def _tighter_bound(a: int | None, b: int | None) -> int | None:
    return b if a is None else a if b is None else min(a, b)


def _exceeded_resource(allocated: Sequence[int], requested: Amounts, bound: Bound) -> str:
    for kind, name in enumerate(RESOURCES):
        maximum = bound[kind]
        if maximum is not None and requested[kind] > 0 and allocated[kind] + requested[kind] > maximum:
            return name
    return ""
