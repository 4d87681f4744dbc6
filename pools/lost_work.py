"""Work that would be lost if a node ended.

Pods and allocations belong to a higher layer, so this module reads them through the node's relations. The
database computes the sums, because there are many more pods than nodes.
"""

from datetime import datetime

from django.db.models import BigIntegerField, Count, Expression, F, Func, Q, Sum, Value
from django.db.models.functions import Cast, Coalesce, Greatest

from berth.core.amounts import MILLI
from pools.engine.victims import NO_WORK, Work
from pools.models import Node, NodePool
from pools.models.node import HOSTING

CHECKPOINT = "allocations__pod__workload__last_checkpoint_at"
NON_PREEMPTIBLE = Q(allocations__pod__workload__preemptible=False)


def work_to_lose(now: datetime, pool: NodePool | None = None) -> dict[int, Work]:
    """Return the work on each node with allocations or reservations, by node ID."""
    hosting = Node.objects.filter(state__in=HOSTING)
    if pool is not None:
        hosting = hosting.filter(pool=pool)
    running = hosting.filter(allocations__isnull=False, allocations__released_at__isnull=True).order_by()
    seconds = _seconds_at_risk(now)
    devices = Coalesce(F("allocations__devices__len"), 0)
    sums = running.values("pk").annotate(
        non_preemptible=Count("allocations", filter=NON_PREEMPTIBLE),
        gpu=Sum(seconds * F("allocations__gpu_milli") * devices / MILLI, output_field=BigIntegerField()),
        cpu=Sum(seconds * F("allocations__cpu_milli") / MILLI, output_field=BigIntegerField()),
        count=Count("allocations"),
    )
    work = {
        node: Work(*columns)
        for node, *columns in sums.values_list("pk", "non_preemptible", "gpu", "cpu", "count")
    }
    reserved = hosting.filter(reservations__isnull=False).order_by()
    for node in reserved.values_list("pk", flat=True):
        work[node] = _add_work(work.get(node, NO_WORK), Work(pods=1))
    return work


def _seconds_at_risk(now: datetime) -> Expression:
    """Return whole seconds since the pod was bound or since its workload's last checkpoint."""
    since = Greatest("allocations__bound_at", CHECKPOINT)  # ignores a null checkpoint
    elapsed = Func(Value(now) - since, template="floor(extract(epoch FROM %(expressions)s))")
    return Greatest(Cast(elapsed, BigIntegerField()), Value(0), output_field=BigIntegerField())


def _add_work(one: Work, other: Work) -> Work:
    return Work(*(a + b for a, b in zip(one, other, strict=True)))
