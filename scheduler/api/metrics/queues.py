"""Prometheus metrics of queues: pending workloads, pending times and shares."""

from collections.abc import Iterable
from datetime import timedelta

from django.db.models import Count, DurationField, ExpressionWrapper, F, Min, Q
from django.db.models.functions import Extract
from django.utils import timezone
from prometheus_client.core import GaugeMetricFamily, Metric

from projects.models import Phase, Quota, Workload
from scheduler.models import QueueStatus
from scheduler.reports.queues.pending_times import WAITS_ONLY_FOR_CAPACITY, Percentile

MILLI = 1000.0
ONE_DAY = timedelta(days=1)
QUANTILES = (0.5, 0.95, 1.0)
QUEUE = ("pool", "department", "project")
NO_REASON_YET = "NotSeenYet"  # reason shown for workloads submitted after the last cycle


def queue_metrics() -> Iterable[Metric]:
    yield from _pending_metrics()
    yield _pending_time_metric()
    yield from _share_metrics()
    yield _quota_metric()


def _pending_metrics() -> Iterable[Metric]:
    rows = Workload.objects.filter(phase__in=(Phase.PENDING, Phase.RESERVED)).order_by()
    by_reason = GaugeMetricFamily(
        "berth_pending_by_reason", "Pending workloads by main reason.", labels=["reason"]
    )
    for reason, count in sorted(rows.values_list("reason").annotate(n=Count("pk"))):
        by_reason.add_metric([reason or NO_REASON_YET], count)
    yield by_reason
    oldest = rows.aggregate(at=Min("submitted_at"))["at"]
    waits = (timezone.now() - oldest).total_seconds() if oldest is not None else 0.0
    yield GaugeMetricFamily(
        "berth_longest_wait_seconds",
        "Time since submission of the oldest pending workload.",
        value=max(0.0, waits),
    )


def _pending_time_metric() -> Metric:
    """Return the pending times of workloads that first started in the last 24 hours."""
    metric = GaugeMetricFamily(
        "berth_wait_seconds",
        "Time from submission to the first start, in the last 24 hours, without tasks of limited arrays.",
        labels=["pool", "quantile"],
    )  # fmt: skip
    waited = ExpressionWrapper(F("first_started_at") - F("submitted_at"), output_field=DurationField())
    recent = Q(first_started_at__gte=timezone.now() - ONE_DAY, pool__isnull=False)
    rows = Workload.objects.filter(recent & WAITS_ONLY_FOR_CAPACITY)
    rows_by_pool = rows.order_by().annotate(waited=Extract(waited, "epoch")).values_list("pool__name")
    for part in QUANTILES:
        percentiles = rows_by_pool.annotate(seconds=Percentile("waited", part=part))
        for pool, seconds in percentiles.order_by("pool__name"):
            metric.add_metric([str(pool), str(part)], seconds)
    return metric


def _share_metrics() -> Iterable[Metric]:
    """Return metrics of each queue's status in the last cycle. Departments have an empty project label."""
    families = {
        "share": GaugeMetricFamily("berth_queue_share_gpus", "Fair share of the queue.", labels=QUEUE),
        "allocated": GaugeMetricFamily(
            "berth_queue_allocated_gpus", "GPUs allocated to the queue.", labels=QUEUE
        ),
        "reserved": GaugeMetricFamily(
            "berth_queue_reserved_gpus", "GPUs reserved for replicas that cannot start yet.", labels=QUEUE
        ),
        "requested": GaugeMetricFamily(
            "berth_queue_requested_gpus", "GPUs requested in the queue.", labels=QUEUE
        ),
    }
    rows = QueueStatus.objects.order_by("pool__name", "department__name", "project__name").values_list(
        "pool__name", "department__name", "project__department__name", "project__name",
        "share", "allocated", "reserved", "requested",
    )  # fmt: skip
    for pool, department, parent_department, project, *amounts in rows:
        labels = [pool, department or parent_department, project or ""]
        for family, amount_by_resource in zip(families.values(), amounts, strict=True):
            family.add_metric(labels, amount_by_resource[0] / MILLI)
    yield from families.values()


def _quota_metric() -> Metric:
    """Unlimited quotas have no sample.

    A group quota has a single sample with the group's name as its `pool` label.
    """
    metric = GaugeMetricFamily(
        "berth_queue_quota_gpus", "Quota of the queue; absent if unlimited.", labels=QUEUE
    )
    rows = Quota.objects.filter(gpu_milli__isnull=False).values_list(
        "pool__name", "group__name", "department__name", "project__department__name", "project__name",
        "gpu_milli",
    )  # fmt: skip
    for pool, group, department, parent_department, project, milli in rows.order_by("pool__name", "pk"):
        labels = [pool or group, department or parent_department, project or ""]
        metric.add_metric(labels, (milli or 0) / MILLI)
    return metric
