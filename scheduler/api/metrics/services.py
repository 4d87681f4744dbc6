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
OF_SERVICE = ("service__workload__project__name", "service__workload__name")


def service_metrics() -> Iterable[Metric]:
    yield from _engines()
    yield from _scaling()


def own_metrics() -> Iterable[Metric]:
    """Of Berth itself."""
    deliveries = GaugeMetricFamily("berth_deliveries", "News kept in the log, by state.", labels=["state"])
    counts = dict(Delivery.objects.order_by().values_list("state").annotate(n=Count("pk")))
    for state in Delivery.State.values:
        deliveries.add_metric([state], counts.get(state, 0))
    yield deliveries
    yield GaugeMetricFamily("berth_task_queue_length", "Jobs not done yet.", value=OrmQ.objects.count())
    built = GaugeMetricFamily("berth_build_info", "Which Berth this is.", labels=["version"])
    built.add_metric([installed_version()], 1)
    yield built


def _engines() -> Iterable[Metric]:
    rows = InferenceEngine.objects.filter(service__ended_at__isnull=True).exclude(state__in=ENDED_STATES)
    counts: Counter[tuple[str, str, str]] = Counter()
    healthy: Counter[tuple[str, str]] = Counter()
    requests: dict[tuple[str, str], int] = defaultdict(int)
    for project, service, state, is_healthy, running in rows.values_list(
        *OF_SERVICE, "state", "is_healthy", "running"
    ):
        counts[project, service, state.lower()] += 1
        healthy[project, service] += is_healthy
        requests[project, service] += running or 0
    by_state = GaugeMetricFamily("berth_service_engines", "By state.", labels=[*SERVICE, "state"])
    well = GaugeMetricFamily("berth_service_engines_healthy", "Engines that answer well.", labels=SERVICE)
    load = GaugeMetricFamily("berth_service_requests", "Requests that engines work on.", labels=SERVICE)
    for (project, service, state), count in sorted(counts.items()):
        by_state.add_metric([project, service, state], count)
    for key in sorted(healthy):
        well.add_metric(key, healthy[key])
        load.add_metric(key, requests[key])
    yield from (by_state, well, load)


def _scaling() -> Iterable[Metric]:
    under_way = GaugeMetricFamily(
        "berth_service_scaling", "Scale requests under way.", labels=[*SERVICE, "direction"]
    )
    rows = ScaleRequest.objects.exclude(status__in=FINAL_STATUSES).order_by()
    counted = rows.values_list(*OF_SERVICE, "direction").annotate(n=Count("pk"))
    for project, service, direction, count in counted:
        under_way.add_metric([project, service, direction], count)
    blind = GaugeMetricFamily(
        "berth_service_autoscaler_missing_metrics",
        "1: it is on and could not decide the last time.",
        labels=SERVICE,
    )
    minds = Autoscaler.objects.filter(Q(enabled=True), service__ended_at__isnull=True)
    for project, service, last_error in minds.values_list(*OF_SERVICE, "last_error"):
        blind.add_metric([project, service], float(bool(last_error)))
    yield from (under_way, blind)
