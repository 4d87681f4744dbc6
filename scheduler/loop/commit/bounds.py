"""Recheck the limits and quotas of workloads with a reservation."""

from collections.abc import Iterable, Sequence

from django.db.models import Q

from berth.core.amounts import RESOURCES, Amounts
from pools.models import NodePool
from projects.models import Quota, Workload
from scheduler.loop.observe.specs import ParsedSpec
from scheduler.models import Allocation, Reservation
from scheduler.reports.queues.queue_statuses import ZERO, allocated_by_queue

Bound = tuple[int | None, int | None, int | None]


def total_request(rows: Iterable[Reservation], spec: ParsedSpec) -> Amounts:
    total = Amounts()
    for row in rows:
        request = spec.roles[row.role].request
        total = total.plus(Amounts(row.gpu_milli * len(row.devices), request.cpu, request.memory_mib))
    return total


def exceeded_bound(workload: Workload, pool: NodePool, requested: Amounts) -> str:
    """Return a sentence about the first limit or quota that the request exceeds, or an empty string."""
    project, department = workload.project, workload.project.department
    allocated = allocated_by_queue()
    for name, quota, key, within in (
        (
            project.name,
            Quota.objects.filter(pool=pool, project=project).first(),
            (None, project.pk),
            Q(project=project),
        ),
        (
            department.name,
            Quota.objects.filter(pool=pool, department=department).first(),
            (department.pk, None),
            Q(project__department=department),
        ),
    ):
        resource = _exceeded_resource(allocated.get((pool.pk, key), ZERO), requested, _limit(quota))
        if not resource and not workload.preemptible:
            resource = _exceeded_resource(_non_preemptible_allocation(within, pool), requested, _quota(quota))
        if resource:
            return f"{name} would exceed its {resource} limit."
    return ""


def _non_preemptible_allocation(within: Q, pool: NodePool) -> Sequence[int]:
    """Return the total allocation of non-preemptible workloads."""
    total = Amounts()
    workloads = Workload.objects.filter(within, preemptible=False)
    for row in Allocation.objects.filter(released_at=None, node__pool=pool, pod__workload__in=workloads):
        total = total.plus(Amounts(row.gpu_milli_total, row.cpu_milli, row.memory_mib))
    return total


def _limit(quota: Quota | None) -> Bound:
    """Return the upper bound: the limit or, if the queue may not borrow, the lower of limit and quota."""
    if quota is None:
        return (None, None, None)
    limit = (quota.limit_gpu_milli, quota.limit_cpu_milli, quota.limit_memory_mib)
    if quota.over_quota:
        return limit
    gpu, cpu, memory = (_lower(*pair) for pair in zip(limit, _quota(quota), strict=True))
    return gpu, cpu, memory


def _quota(quota: Quota | None) -> Bound:
    return (0, None, None) if quota is None else (quota.gpu_milli, quota.cpu_milli, quota.memory_mib)


def _lower(a: int | None, b: int | None) -> int | None:
    return b if a is None else a if b is None else min(a, b)


def _exceeded_resource(allocated: Sequence[int], requested: Amounts, bound: Bound) -> str:
    for kind, name in enumerate(RESOURCES):
        maximum = bound[kind]
        if maximum is not None and requested[kind] > 0 and allocated[kind] + requested[kind] > maximum:
            return name
    return ""
