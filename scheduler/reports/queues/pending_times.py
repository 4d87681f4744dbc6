"""Time that workloads spend pending before their first start."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from django.db.models import Aggregate, Count, DurationField, ExpressionWrapper, F, FloatField, Max, Q
from django.db.models.functions import Extract

from pools.models import NodePool
from projects.actor import Actor
from projects.selectors import workloads

PERCENTILE_STARTS = 20


@dataclass(frozen=True, slots=True)
class PendingTimes:
    """Median, 95th percentile and maximum of pending times in seconds, or None if no workload started."""

    started: int
    median: float | None
    p95: float | None
    longest: float | None

    @property
    def has_percentiles(self) -> bool:
        """Whether enough workloads have started for the 95th percentile to differ from the maximum."""
        return self.started >= PERCENTILE_STARTS


class Percentile(Aggregate):
    """Exact percentile, interpolated between adjacent values."""

    function = "PERCENTILE_CONT"
    template = "%(function)s(%(part)s) WITHIN GROUP (ORDER BY %(expressions)s)"
    output_field = FloatField()


# Tasks of arrays with a limit on running tasks also wait for earlier tasks, whatever the pool's capacity.
WAITS_ONLY_FOR_CAPACITY = Q(array__isnull=True) | Q(array__max_running__isnull=True)


def pending_times(actor: Actor, pools: Iterable[NodePool], since: datetime) -> PendingTimes:
    """Return how long visible workloads in the pools were pending before their first start, for first starts
    at or after `since`. Tasks of arrays that limit running tasks are omitted.
    """
    waited = ExpressionWrapper(F("first_started_at") - F("submitted_at"), output_field=DurationField())
    selected = list(pools)
    placed = Q(pool__in=selected) | Q(pool__isnull=True, pools__overlap=[pool.name for pool in selected])
    recent = Q(first_started_at__gte=since) & placed
    rows = workloads(actor).filter(recent & WAITS_ONLY_FOR_CAPACITY).order_by()
    sums = rows.annotate(waited=Extract(waited, "epoch")).aggregate(
        n=Count("pk"),
        median=Percentile("waited", part=0.5),
        p95=Percentile("waited", part=0.95),
        longest=Max("waited"),
    )
    return PendingTimes(sums["n"], sums["median"], sums["p95"], sums["longest"])
