"""Work that would be lost with each node.

Pods, and what they hold, are rows of a higher floor; they are reached from the node, by name. The database
adds up: there are many more pods than nodes.
"""

from datetime import datetime

from django.db.models import BigIntegerField, Count, Expression, F, Func, Q, Sum, Value
from django.db.models.functions import Cast, Coalesce, Greatest

from berth.core.amounts import MILLI
from pools.engine.victims import NONE, Work
from pools.models import Node, NodePool
from pools.models.node import HOSTING

CHECKPOINT = "allocations__pod__workload__last_checkpoint_at"
FIRM = Q(allocations__pod__workload__preemptible=False)


def work_to_lose(now: datetime, pool: NodePool | None = None) -> dict[int, Work]:
    """By node id, of nodes on which something runs, or is promised to."""
    hosting = Node.objects.filter(state__in=HOSTING)
    if pool is not None:
        hosting = hosting.filter(pool=pool)
    running = hosting.filter(allocations__isnull=False, allocations__released_at__isnull=True).order_by()
    seconds = _seconds(now)
    devices = Coalesce(F("allocations__devices__len"), 0)
    held = running.values("pk").annotate(
        firm=Count("allocations", filter=FIRM),
        gpu=Sum(seconds * F("allocations__gpu_milli") * devices / MILLI, output_field=BigIntegerField()),
        cpu=Sum(seconds * F("allocations__cpu_milli") / MILLI, output_field=BigIntegerField()),
        count=Count("allocations"),
    )
    found = {node: Work(*sums) for node, *sums in held.values_list("pk", "firm", "gpu", "cpu", "count")}
    promised = hosting.filter(reservations__isnull=False).order_by()
    for node in promised.values_list("pk", flat=True):
        found[node] = _plus(found.get(node, NONE), Work(pods=1))
    return found


def _seconds(now: datetime) -> Expression:
    """Whole ones since a pod was given its place, or since its workload's last checkpoint."""
    since = Greatest("allocations__bound_at", CHECKPOINT)  # of the two, whichever is there
    passed = Func(Value(now) - since, template="floor(extract(epoch FROM %(expressions)s))")
    return Greatest(Cast(passed, BigIntegerField()), Value(0), output_field=BigIntegerField())


def _plus(one: Work, other: Work) -> Work:
    return Work(*(a + b for a, b in zip(one, other, strict=True)))
