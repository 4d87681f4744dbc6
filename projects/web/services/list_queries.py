"""Filter and annotate the list of services."""

from collections.abc import Mapping
from datetime import datetime

from django.db.models import Count, F, FloatField, OuterRef, Q, QuerySet, Subquery
from django.db.models.fields.json import KeyTextTransform
from django.db.models.functions import Cast, Coalesce

from projects.models import MetricsPoint, Service
from projects.models.workloads import ENDED_PHASES
from projects.web.services.charts import RECENT

SERVING, PARTLY, NOT_SERVING, ENDED = "serving", "partly", "not-serving", "ended"
SERVING_STATES: Mapping[str, str] = {
    SERVING: "Serving", PARTLY: "Partly serving", NOT_SERVING: "Not serving", ENDED: "Ended",
}  # fmt: skip
# Metric of each column that sorts the list by load.
LOAD_METRICS = {
    "running": "total_running_reqs", "queued": "total_queue_reqs", "queue_time": "queue_time_p95",
}  # fmt: skip
NO_LOAD = -1.0  # sort value for services without metrics, below idle services


def filter_by_state(rows: QuerySet[Service], state: str) -> QuerySet[Service]:
    """Return the services with this serving status, or all services if `state` is not a serving status."""
    ended = Q(workload__phase__in=ENDED_PHASES)
    live = Q(engines__ended_at__isnull=True)
    if state == ENDED:
        return rows.filter(ended)
    if state not in SERVING_STATES:
        return rows
    healthy = live & Q(engines__state="ACTIVE", engines__is_healthy=True)
    rows = rows.exclude(ended).annotate(
        healthy=Count("engines", filter=healthy), live=Count("engines", filter=live)
    )
    if state == SERVING:
        return rows.filter(live__gt=0, healthy=F("live"))
    if state == PARTLY:
        return rows.filter(healthy__gt=0, healthy__lt=F("live"))
    return rows.filter(healthy=0)


def annotate_load(rows: QuerySet[Service], now: datetime) -> QuerySet[Service]:
    """Annotate services with their latest load metrics, so that the list can be sorted by them."""
    latest = MetricsPoint.objects.filter(service=OuterRef("pk"), at__gt=now - RECENT).order_by("-at", "-pk")
    return rows.annotate(
        **{
            column: Coalesce(
                Subquery(latest.values(number=Cast(KeyTextTransform(metric, "values"), FloatField()))[:1]),
                NO_LOAD,
            )
            for column, metric in LOAD_METRICS.items()
        }
    )
