"""Compute the work that would be lost if a node were terminated."""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from functools import cached_property

from django.db.models import BigIntegerField, Count, Expression, F, Func, Q, QuerySet, Sum, Value
from django.db.models.functions import Cast, Coalesce, Greatest

from berth.core.values.amounts import MILLI
from berth.db.queries.compiled import Parameter, compiled_once
from pools.engine.victims import NO_WORK, LostWork
from pools.models import Node, NodePool
from pools.models.node import HOSTING

CHECKPOINT = "allocations__pod__workload__last_checkpoint_at"
NON_PREEMPTIBLE = Q(allocations__pod__workload__preemptible=False)


def lost_work_by_node(now: datetime, pool: NodePool | None = None) -> dict[int, LostWork]:
    """Return the work that each node with allocations or reservations would lose, keyed by node ID."""
    running: Iterable[tuple[int, ...]]
    reserved: Iterable[int]
    if pool is None:
        running, reserved = RUNNING(now), RESERVED()
    else:
        nodes = _hosting_nodes().filter(pool=pool)
        running, reserved = _running_work(nodes, Value(now)), _reserved_nodes(nodes)
    work = {node: LostWork(*columns) for node, *columns in running}
    for node in reserved:
        work[node] = _sum_work(work.get(node, NO_WORK), LostWork(pods=1))
    return work


def _hosting_nodes() -> QuerySet[Node]:
    return Node.objects.filter(state__in=HOSTING).order_by()


def _running_work(nodes: QuerySet[Node], now: Value | Parameter) -> QuerySet[Node, tuple[int, ...]]:
    running = nodes.filter(allocations__isnull=False, allocations__released_at__isnull=True)
    seconds = _seconds_at_risk(now)
    devices = Coalesce(F("allocations__devices__len"), 0)
    sums = running.values("pk").annotate(
        non_preemptible=Count("allocations", filter=NON_PREEMPTIBLE),
        gpu=Sum(seconds * F("allocations__gpu_milli") * devices / MILLI, output_field=BigIntegerField()),
        cpu=Sum(seconds * F("allocations__cpu_milli") / MILLI, output_field=BigIntegerField()),
        count=Count("allocations"),
    )
    return sums.values_list("pk", "non_preemptible", "gpu", "cpu", "count")


def _reserved_nodes(nodes: QuerySet[Node]) -> QuerySet[Node, int]:
    return nodes.filter(reservations__isnull=False).values_list("pk", flat=True)


RUNNING = compiled_once(lambda now: _running_work(_hosting_nodes(), now), planned_once=False)
RESERVED = compiled_once(lambda: _reserved_nodes(_hosting_nodes()), planned_once=False)


class LazyLostWork(Mapping[int, LostWork]):
    """Result of `lost_work_by_node`, computed on first use because most passes drain no nodes."""

    def __init__(self, now: datetime) -> None:
        self._now = now

    def __getitem__(self, node: int) -> LostWork:
        return self._lost_work_rows[node]

    def __iter__(self) -> Iterator[int]:
        return iter(self._lost_work_rows)

    def __len__(self) -> int:
        return len(self._lost_work_rows)

    def __bool__(self) -> bool:
        return True  # avoid calling `len`, which would read the rows

    @cached_property
    def _lost_work_rows(self) -> dict[int, LostWork]:
        return lost_work_by_node(self._now)


def _seconds_at_risk(now: Value | Parameter) -> Expression:
    """Return the seconds since the last checkpoint or the pod's start, whichever is later."""
    since = Greatest("allocations__bound_at", CHECKPOINT)  # `Greatest` ignores a null checkpoint
    elapsed = Func(now - since, template="floor(extract(epoch FROM %(expressions)s))")
    return Greatest(Cast(elapsed, BigIntegerField()), Value(0), output_field=BigIntegerField())


def _sum_work(one: LostWork, other: LostWork) -> LostWork:
    return LostWork(*(a + b for a, b in zip(one, other, strict=True)))
