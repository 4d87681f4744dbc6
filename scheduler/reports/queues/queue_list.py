"""A pool's queue, in the order of the last cycle."""

from dataclasses import dataclass

from django.db.models import Count, IntegerField, Q, QuerySet, Sum
from django.db.models.fields.json import KT
from django.db.models.functions import Cast, Coalesce

from pools.models import NodePool
from projects.actor import Actor
from projects.models import Phase, Workload
from projects.selectors import workloads
from projects.services.workloads.unschedulable import REASON as UNSCHEDULABLE

PENDING_PHASES = (Phase.PENDING, Phase.RESERVED)
NOT_EVALUATED = 2**31 - 1


@dataclass(frozen=True, slots=True)
class QueueLength:
    """Length of the whole queue, including workloads that the user may not see."""

    workloads: int
    gpu_milli: int
    held_tasks: int  # number of array tasks that wait for earlier tasks
    unschedulable: int


def queued_workloads(actor: Actor, pool: NodePool) -> QuerySet[Workload]:
    """Return the pending workloads that the user may see, in queue order.

    Each workload is annotated with its queue position. Workloads that no cycle has evaluated yet
    come last.
    """
    queue_position = Cast(KT("explanation__queue_position"), IntegerField())
    pending = workloads(actor).filter(_queue_filter(pool))
    return pending.annotate(queue_position=Coalesce(queue_position, NOT_EVALUATED)).order_by(
        "queue_position", "pk"
    )


def queue_length(pool: NodePool) -> QueueLength:
    queued = Q(held=False) & ~Q(reason=UNSCHEDULABLE)
    sums = Workload.objects.filter(_pending_in(pool)).aggregate(
        n=Count("pk", filter=queued),
        milli=Sum("gpu_milli_min", filter=queued),
        held_tasks=Count("pk", filter=Q(held=True)),
        unschedulable=Count("pk", filter=Q(held=False, reason=UNSCHEDULABLE)),
    )
    return QueueLength(sums["n"], sums["milli"] or 0, sums["held_tasks"], sums["unschedulable"])


def _queue_filter(pool: NodePool) -> Q:
    """Return a filter for the pending workloads in a pool's queue.

    Unschedulable workloads and held tasks of arrays are in no queue.
    """
    return _pending_in(pool) & Q(held=False) & ~Q(reason=UNSCHEDULABLE)


def _pending_in(pool: NodePool) -> Q:
    """Return a filter for a pool's pending workloads.

    A workload that allows several pools belongs to the pool that its last explanation names.
    """
    here = Q(explanation__pool=pool.name) | Q(explanation__pool__isnull=True, pools__0=pool.name)
    return Q(phase__in=PENDING_PHASES) & here
