"""Time that workloads spend pending before their first start."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from django.db.models import Aggregate, Count, DurationField, ExpressionWrapper, F, FloatField, Q
from django.db.models.functions import Extract

from pools.models import NodePool
from projects.actor import Actor
from projects.selectors import workloads


@dataclass(frozen=True, slots=True)
class PendingTimes:
    """Median and 95th percentile of pending times in seconds, or None if no workload started."""

    started: int
    median: float | None
    p95: float | None


class Percentile(Aggregate):
    """Exact percentile, interpolated between adjacent values."""

    function = "PERCENTILE_CONT"
    template = "%(function)s(%(part)s) WITHIN GROUP (ORDER BY %(expressions)s)"
    output_field = FloatField()


# Tasks of arrays with a limit on running tasks also wait for earlier tasks, whatever the pool's capacity.
WAITS_ONLY_FOR_CAPACITY = Q(array__isnull=True) | Q(array__max_running__isnull=True)


def pending_times(actor: Actor, pools: Iterable[NodePool], since: datetime) -> PendingTimes:
    """Return the pending times of visible workloads in the pools that first started at or after `since`.

    Tasks of arrays that limit running tasks are omitted.
    """
    waited = ExpressionWrapper(F("first_started_at") - F("submitted_at"), output_field=DurationField())
    recent = Q(first_started_at__gte=since, pool__in=list(pools))
    rows = workloads(actor).filter(recent & WAITS_ONLY_FOR_CAPACITY).order_by()
    sums = rows.annotate(waited=Extract(waited, "epoch")).aggregate(
        n=Count("pk"), median=Percentile("waited", part=0.5), p95=Percentile("waited", part=0.95)
    )
    return PendingTimes(sums["n"], sums["median"], sums["p95"])
