"""Queued workloads in the last cycle's order, and queue lengths."""

from dataclasses import dataclass
from typing import Any

from django.db.models import (
    BigIntegerField,
    Case,
    Count,
    F,
    IntegerField,
    Q,
    QuerySet,
    Sum,
    TextField,
    Value,
    When,
)
from django.db.models.fields.json import KT
from django.db.models.functions import Cast, Coalesce, Collate, Extract

from berth.core.values.priorities import HIGHEST
from pools.models import NodePool
from projects.actor import Actor
from projects.models import Phase, Workload
from projects.selectors import workload_count, workloads
from projects.services.workloads.pending.unschedulable import REASON as UNSCHEDULABLE

PENDING_PHASES = (Phase.PENDING, Phase.RESERVED)
NO_POSITION, NOT_EVALUATED = 0, 2**31 - 1
SEVERAL_POOLS = ""  # queue of workloads that allow several pools and have not been evaluated in any of them
QUEUE_POOL = Coalesce(
    KT("explanation__pool"),
    Case(
        When(pools__len=1, then=Cast(F("pools__0"), TextField())),
        default=Value(SEVERAL_POOLS),
        output_field=TextField(),
    ),
)
POOL_SORT_KEY = Case(
    When(queue_pool=SEVERAL_POOLS, then=Value("~")), default=F("queue_pool"), output_field=TextField()
)
QUEUE_POSITION = Coalesce(
    Case(
        When(phase=Phase.RESERVED, then=NO_POSITION),
        default=Cast(KT("explanation__queue_position"), IntegerField()),
    ),
    NOT_EVALUATED,
)
# New workloads come after all positions, by priority and then by queue time, as in a project's queue.
_QUEUE_TIME = Coalesce(F("requeued_at"), F("submitted_at"))
_MILLISECONDS = Cast(Extract(_QUEUE_TIME, "epoch") * 1000, BigIntegerField())
_PRIORITY_STEP = 2**43  # larger than the current Unix time in milliseconds
QUEUE_ORDER = Case(
    When(
        queue_position=NOT_EVALUATED,
        then=Value(NOT_EVALUATED, BigIntegerField())
        + (Value(HIGHEST, BigIntegerField()) - F("priority")) * Value(_PRIORITY_STEP, BigIntegerField())
        + _MILLISECONDS,
    ),
    default=Cast(F("queue_position"), BigIntegerField()),
    output_field=BigIntegerField(),
)


@dataclass(frozen=True, slots=True)
class QueueLength:
    """Length of the entire queue, including hidden workloads. An array counts as one workload."""

    workloads: int
    rows: int  # number of queued workloads and array tasks
    gpu_milli: int
    held_tasks: int  # number of array tasks that wait for earlier tasks
    unschedulable: int


def queued_workloads(actor: Actor, pool: NodePool | None) -> QuerySet[Workload]:
    """Return the visible pending workloads of one pool or all pools, in queue order.

    Reserved workloads come first. New workloads come last, sorted by priority and then by queue time. Each
    workload is annotated with its pool, its queue position and sort keys. A new workload that allows several
    pools is annotated with SEVERAL_POOLS.
    """
    pending = workloads(actor).filter(_queue_filter(pool))
    return pending.annotate(
        queue_position=QUEUE_POSITION,
        queue_pool=QUEUE_POOL,
        queue_order=QUEUE_ORDER,
        reversed_order=F("queue_order") * -1,
        pool_key=Collate(POOL_SORT_KEY, "C"),
    ).order_by("queue_order", "pk")


def all_queued_workloads(pool: NodePool | None) -> QuerySet[Any]:
    """Return the workloads in the pool's queue, or in all queues, in no particular order.

    Each workload is annotated with its queue position and pool.
    """
    rows = Workload.objects.filter(_queue_filter(pool)).order_by()
    return rows.annotate(queue_position=QUEUE_POSITION, queue_pool=QUEUE_POOL)


def queue_length(pool: NodePool | None) -> QueueLength:
    queued = Q(held=False) & ~Q(reason=UNSCHEDULABLE)
    sums = Workload.objects.filter(_pending_filter(pool)).aggregate(
        n=workload_count(queued),
        rows=Count("pk", filter=queued),
        milli=Sum("gpu_milli_min", filter=queued),
        held_tasks=Count("pk", filter=Q(held=True)),
        unschedulable=Count("pk", filter=Q(held=False, reason=UNSCHEDULABLE)),
    )
    return QueueLength(
        sums["n"],
        sums["rows"],
        sums["milli"] or 0,
        sums["held_tasks"],
        sums["unschedulable"],
    )


def held_tasks(actor: Actor, pool: NodePool | None) -> QuerySet[Workload]:
    """Return the visible array tasks that are held until earlier tasks end, in one pool or all pools."""
    return workloads(actor).filter(_pending_filter(pool), held=True)


def unschedulable_workloads(actor: Actor, pool: NodePool | None) -> QuerySet[Workload]:
    """Return the visible workloads that can never start, in one pool or all pools and in no particular order.

    Each array task has a separate row.
    """
    rows = workloads(actor).filter(phase=Phase.PENDING, reason=UNSCHEDULABLE)
    return rows if pool is None else rows.filter(pools__contains=[pool.name])


def count_unschedulable(actor: Actor, pool: NodePool | None, matching: Q | None = None) -> int:
    """Return the number of visible workloads that can never start and match `matching`.

    An array counts once, as in the list.
    """
    rows = unschedulable_workloads(actor, pool).filter(matching or Q())
    count: int = rows.aggregate(n=workload_count(Q()))["n"]
    return count


def queue_lengths(rows: QuerySet[Any] | None = None) -> dict[str, tuple[int, int]]:
    """Return (workloads, requested milli-GPU) for each pool's queue, keyed by pool name or SEVERAL_POOLS.

    If `rows` is set, only these rows are counted. An array counts as one workload.
    """
    queued = all_queued_workloads(None) if rows is None else rows.order_by()
    sums = queued.values_list("queue_pool").annotate(n=workload_count(), milli=Sum("gpu_milli_min"))
    return {name: (count, milli or 0) for name, count, milli in sums}


def _queue_filter(pool: NodePool | None) -> Q:
    """Return a filter for the workloads in a pool's queue, or in all queues.

    Unschedulable workloads and held array tasks are in no queue.
    """
    return _pending_filter(pool) & Q(held=False) & ~Q(reason=UNSCHEDULABLE)


def _pending_filter(pool: NodePool | None) -> Q:
    """Return a filter for pending workloads in one pool, or in all pools.

    A workload that allows several pools belongs to the pool in its last explanation. Without an explanation,
    it belongs to all of them.
    """
    if pool is None:
        return Q(phase__in=PENDING_PHASES)
    here = Q(explanation__pool=pool.name)
    here |= Q(explanation__pool__isnull=True, pools__contains=[pool.name])
    return Q(phase__in=PENDING_PHASES) & here
