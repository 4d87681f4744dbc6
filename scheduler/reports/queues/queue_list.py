"""Queue of a pool, in the order of the last cycle."""

from dataclasses import dataclass

from django.db.models import Count, IntegerField, Q, QuerySet, Sum
from django.db.models.fields.json import KT
from django.db.models.functions import Cast, Coalesce

from pools.models import NodePool
from projects.acting import Acting
from projects.models import Phase, Workload
from projects.selectors import workloads
from projects.services.workloads.unschedulable import REASON as UNSCHEDULABLE

WAITING = (Phase.PENDING, Phase.RESERVED)
NOT_LOOKED_AT = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Length:
    """Length of the whole queue, including workloads that the reader may not see."""

    workloads: int
    gpu_milli: int


def queued_workloads(acting: Acting, pool: NodePool) -> QuerySet[Workload]:
    """Return the pending workloads that the reader may see, in queue order, with their queue position.

    Workloads that no cycle has considered yet come last, with the queue position NOT_LOOKED_AT.
    """
    queue_position = Cast(KT("explanation__queue_position"), IntegerField())
    waiting = workloads(acting).filter(_in_queue(pool))
    return waiting.annotate(queue_position=Coalesce(queue_position, NOT_LOOKED_AT)).order_by(
        "queue_position", "pk"
    )


def length_of(pool: NodePool) -> Length:
    sums = Workload.objects.filter(_in_queue(pool)).aggregate(n=Count("pk"), milli=Sum("gpu_milli_min"))
    return Length(sums["n"], sums["milli"] or 0)


def _in_queue(pool: NodePool) -> Q:
    """Return a filter for the pending workloads in a pool's queue.

    A workload with several pools is in the queue of the pool for which it was last explained. An
    unschedulable workload is in no queue.
    """
    here = Q(explanation__pool=pool.name) | Q(explanation__pool__isnull=True, pools__0=pool.name)
    return Q(phase__in=WAITING) & here & ~Q(reason=UNSCHEDULABLE)
