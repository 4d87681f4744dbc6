"""Prometheus metrics of inference services, notifications and the task queue."""

from collections import Counter, defaultdict
from collections.abc import Iterable

from django.db.models import Count, Q
from django_q.models import OrmQ
from prometheus_client.core import GaugeMetricFamily, Metric

from berth.core.version import installed_version
from projects.models import Autoscaler, Delivery, InferenceEngine, ScaleRequest
from projects.models.scaling import ENDED_STATES, FINAL_STATUSES

SERVICE = ("project", "service")
SERVICE_LOOKUPS = ("service__workload__project__name", "service__workload__name")


def service_metrics() -> Iterable[Metric]:
    yield from _engine_metrics()
    yield from _scaling_metrics()


def berth_metrics() -> Iterable[Metric]:
    """Return Berth's own metrics: notification deliveries, task queue and version."""
    deliveries = GaugeMetricFamily("berth_deliveries", "Notification deliveries by state.", labels=["state"])
    counts = dict(Delivery.objects.order_by().values_list("state").annotate(n=Count("pk")))
    for state in Delivery.State.values:
        deliveries.add_metric([state], counts.get(state, 0))
    yield deliveries
    yield GaugeMetricFamily("berth_task_queue_length", "Tasks in the task queue.", value=OrmQ.objects.count())
    build_info = GaugeMetricFamily("berth_build_info", "Installed version of Berth.", labels=["version"])
    build_info.add_metric([installed_version()], 1)
    yield build_info


def _engine_metrics() -> Iterable[Metric]:
    rows = InferenceEngine.objects.filter(service__ended_at__isnull=True).exclude(state__in=ENDED_STATES)
    counts: Counter[tuple[str, str, str]] = Counter()
    healthy: Counter[tuple[str, str]] = Counter()
    requests: dict[tuple[str, str], int] = defaultdict(int)
    for project, service, state, is_healthy, running in rows.values_list(
        *SERVICE_LOOKUPS, "state", "is_healthy", "running"
    ):
        counts[project, service, state.lower()] += 1
        healthy[project, service] += is_healthy
        requests[project, service] += running or 0
    by_state = GaugeMetricFamily("berth_service_engines", "Engines by state.", labels=[*SERVICE, "state"])
    healthy_gauge = GaugeMetricFamily("berth_service_engines_healthy", "Healthy engines.", labels=SERVICE)
    load = GaugeMetricFamily("berth_service_requests", "Requests running on engines.", labels=SERVICE)
    for (project, service, state), count in sorted(counts.items()):
        by_state.add_metric([project, service, state], count)
    for key in sorted(healthy):
        healthy_gauge.add_metric(key, healthy[key])
        load.add_metric(key, requests[key])
    yield from (by_state, healthy_gauge, load)


def _scaling_metrics() -> Iterable[Metric]:
    under_way = GaugeMetricFamily(
        "berth_service_scaling", "Scale requests in progress.", labels=[*SERVICE, "direction"]
    )
    rows = ScaleRequest.objects.exclude(status__in=FINAL_STATUSES).order_by()
    counts_by_direction = rows.values_list(*SERVICE_LOOKUPS, "direction").annotate(n=Count("pk"))
    for project, service, direction, count in counts_by_direction:
        under_way.add_metric([project, service, direction], count)
    failing = GaugeMetricFamily(
        "berth_service_autoscaler_missing_metrics",
        "1 if the enabled autoscaler's last decision failed.",
        labels=SERVICE,
    )
    autoscalers = Autoscaler.objects.filter(Q(enabled=True), service__ended_at__isnull=True)
    for project, service, last_error in autoscalers.values_list(*SERVICE_LOOKUPS, "last_error"):
        failing.add_metric([project, service], float(bool(last_error)))
    yield from (under_way, failing)
