"""Check limits and quotas again when a reservation starts."""

from collections.abc import Iterable, Sequence

from django.db.models import Q

from berth.core.amounts import RESOURCES, Amounts
from pools.models import NodePool
from projects.models import Quota, Workload
from scheduler.models import Allocation, Reservation
from scheduler.reports.queues.queue_standings import NOTHING, held_now
from scheduler.specs import Meaning

Bound = tuple[int | None, int | None, int | None]


def asked_for(rows: Iterable[Reservation], meaning: Meaning) -> Amounts:
    total = Amounts()
    for row in rows:
        request = meaning.roles[row.role].request
        total = total.plus(Amounts(row.gpu_milli * len(row.devices), request.cpu, request.memory_mib))
    return total


def passed_bound(workload: Workload, pool: NodePool, asked: Amounts) -> str:
    """The first bound that would be passed, as a sentence; empty when there is none."""
    project, department = workload.project, workload.project.department
    held = held_now()
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
        resource = _passed(held.get((pool.pk, key), NOTHING), asked, _cap(quota))
        if not resource and not workload.preemptible:
            resource = _passed(_firm(within, pool), asked, _quota(quota))
        if resource:
            return f"{name} would hold more {resource} than it may."
    return ""


def _firm(within: Q, pool: NodePool) -> Sequence[int]:
    """What cannot be taken back: held by work that may not be preempted."""
    total = Amounts()
    firm = Workload.objects.filter(within, preemptible=False)
    for held in Allocation.objects.filter(released_at=None, node__pool=pool, pod__workload__in=firm):
        total = total.plus(Amounts(held.gpu_milli_total, held.cpu_milli, held.memory_mib))
    return total


def _cap(quota: Quota | None) -> Bound:
    """Nobody passes the limit; who may not go beyond quota, not the quota either."""
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


def _passed(held: Sequence[int], asked: Amounts, bound: Bound) -> str:
    for kind, name in enumerate(RESOURCES):
        most = bound[kind]
        if most is not None and asked[kind] > 0 and held[kind] + asked[kind] > most:
            return name
    return ""
