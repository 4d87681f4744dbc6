"""Pending GPUs of projects, for the overview and the quota and fair share pages."""

from collections import Counter
from collections.abc import Iterable

from django.db.models import Sum

from pools.models import NodePool
from projects.models import Phase, Workload
from projects.services.workloads.pending.unschedulable import REASON as UNSCHEDULABLE


def pending_gpus_by_project(pools: Iterable[NodePool], *, can_start: bool = False) -> dict[int, int]:
    """Return the pending milli-GPU, keyed by project ID, for workloads that may run in one of the pools.

    Held array tasks and workloads with reserved GPUs do not count. With `can_start`, unschedulable workloads
    do not count either.
    """
    rows = (
        Workload.objects.filter(
            phase=Phase.PENDING,
            held=False,
            pools__overlap=[pool.name for pool in pools],
        )
        .order_by()
        .values_list("project_id")
        .annotate(requested=Sum("gpu_milli_min"))
    )
    return dict(rows.exclude(reason=UNSCHEDULABLE) if can_start else rows)


def pending_gpus_by_pool(pools: Iterable[NodePool]) -> Counter[str]:
    """Return the pending milli-GPU, keyed by pool name. A workload counts in each pool that it may run in."""
    result = Counter[str]()
    rows = Workload.objects.filter(
        phase=Phase.PENDING, held=False, pools__overlap=[pool.name for pool in pools]
    )
    groups = rows.order_by().values_list("pools").annotate(requested=Sum("gpu_milli_min"))
    for names, requested in groups:
        for name in names:
            result[name] += requested or 0
    return result
