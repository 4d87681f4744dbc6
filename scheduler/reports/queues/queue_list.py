"""The queue of a pool, in the order and by the keys of the last cycle."""

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
    """Of everybody's work, also of what the reader does not see: so that positions make sense."""

    workloads: int
    gpu_milli: int


def line_of(acting: Acting, pool: NodePool) -> QuerySet[Workload]:
    """Those the reader may see, first in line first; `position` is theirs among everybody who waits.

    Work that no cycle has looked at yet comes last, and has the queue position NOT_LOOKED_AT.
    """
    queue_position = Cast(KT("explanation__queue_position"), IntegerField())
    waiting = workloads(acting).filter(_in_line(pool))
    return waiting.annotate(queue_position=Coalesce(queue_position, NOT_LOOKED_AT)).order_by(
        "queue_position", "pk"
    )


def length_of(pool: NodePool) -> Length:
    told = Workload.objects.filter(_in_line(pool)).aggregate(n=Count("pk"), milli=Sum("gpu_milli_min"))
    return Length(told["n"], told["milli"] or 0)


def _in_line(pool: NodePool) -> Q:
    """Of a workload that names several pools, the pool that it was last explained for.

    An unschedulable workload is in no queue.
    """
    told = Q(explanation__pool=pool.name) | Q(explanation__pool__isnull=True, pools__0=pool.name)
    return Q(phase__in=WAITING) & told & ~Q(reason=UNSCHEDULABLE)
