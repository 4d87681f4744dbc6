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
    sums = Workload.objects.filter(_queue_filter(pool)).aggregate(n=Count("pk"), milli=Sum("gpu_milli_min"))
    return QueueLength(sums["n"], sums["milli"] or 0)


def _queue_filter(pool: NodePool) -> Q:
    """Return a filter for the pending workloads in a pool's queue.

    A workload that allows several pools is in the queue of the pool that its last explanation names.
    Unschedulable workloads and held tasks of arrays are in no queue.
    """
    here = Q(explanation__pool=pool.name) | Q(explanation__pool__isnull=True, pools__0=pool.name)
    return Q(phase__in=PENDING_PHASES, held=False) & here & ~Q(reason=UNSCHEDULABLE)
