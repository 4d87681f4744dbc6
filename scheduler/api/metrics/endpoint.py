"""Prometheus endpoint.

Access requires the metrics token (`BERTH_METRICS_TOKEN`), a platform admin's token with the admin scope, or a
client address in `BERTH_METRICS_NETWORKS`.
"""

from collections.abc import Iterable
from ipaddress import ip_address
from typing import Any, Never

from django.conf import settings
from django.db.models import Count, Q
from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern, URLResolver, path
from django.utils.crypto import constant_time_compare
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from pydantic import BaseModel
from rest_framework.request import Request

from berth.core.errors import Unauthenticated
from berth.db.models import Lease
from berth.server.api.schema import operation
from berth.server.api.views import ApiView
from projects.models import Pod, Workload
from projects.models.workloads import LIVE_POD_STATES, Phase
from scheduler.api.metrics.pools import pool_metrics
from scheduler.api.metrics.queues import queue_metrics
from scheduler.api.metrics.services import berth_metrics, service_metrics
from scheduler.api.metrics.utilization import utilization_metrics
from scheduler.models import Cycle, Eviction

TEXT = "text/plain; version=0.0.4; charset=utf-8"
FORWARDED = ("HTTP_FORWARDED", "HTTP_X_FORWARDED_FOR", "HTTP_X_REAL_IP", "HTTP_VIA")
CYCLE_WINDOW = 100  # number of cycles that the duration quantiles cover
MILLISECONDS = 1000.0
UNAUTHENTICATED = (
    "Send the metrics token, which the server keeps in BERTH_METRICS_TOKEN or BERTH_HOME/metrics_token, "
    "or a platform admin's token: Authorization: Bearer TOKEN."
)


class ScrapeParameters(BaseModel):
    """URL parameters from a Prometheus scrape configuration. Berth ignores these parameters."""


class Metrics(ApiView):
    @operation("Get metrics for Prometheus", query=ScrapeParameters, media_type="text/plain")
    def get(self, request: Request) -> HttpResponse:
        self.require("administer")
        return render_metrics()

    def permission_denied(
        self, request: Request, message: str | None = None, code: str | None = None
    ) -> Never:
        if not request.user.is_authenticated:
            raise Unauthenticated(UNAUTHENTICATED)
        super().permission_denied(request, message, code)


class DatabaseCollector(Collector):
    def collect(self) -> Iterable[Metric]:
        yield from _workload_metrics()
        yield from pool_metrics()
        yield from utilization_metrics()
        yield from _cycle_metrics()
        yield _eviction_metric()
        yield from queue_metrics()
        yield from service_metrics()
        yield from berth_metrics()


def metrics(request: HttpRequest) -> HttpResponse:
    if has_metrics_token(request) or is_from_allowed_network(request):
        return render_metrics()
    response: HttpResponse = Metrics.as_view()(request)
    return response


def has_metrics_token(request: HttpRequest) -> bool:
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    return scheme.lower() == "bearer" and constant_time_compare(token.strip(), settings.BERTH_METRICS_TOKEN)


def is_from_allowed_network(request: HttpRequest) -> bool:
    """Return whether the request comes directly from an allowed network.

    Forwarded addresses do not count, because they can be forged.
    """
    if any(name in request.META for name in FORWARDED):
        return False
    try:
        address = ip_address(request.META.get("REMOTE_ADDR", ""))
    except ValueError:
        return False
    address = getattr(address, "ipv4_mapped", None) or address
    return any(address in network for network in settings.BERTH_METRICS_NETWORKS)


def render_metrics() -> HttpResponse:
    registry = CollectorRegistry()
    registry.register(DatabaseCollector())
    return HttpResponse(generate_latest(registry), TEXT)


def _workload_metrics() -> Iterable[Metric]:
    phases = dict(Workload.objects.order_by().values_list("phase").annotate(n=Count("pk")))
    gauge = GaugeMetricFamily("berth_workloads", "Workloads by phase.", labels=["phase"])
    for phase in Phase.values:
        gauge.add_metric([phase], phases.get(phase, 0))
    yield gauge
    live = (
        Pod.objects.filter(state__in=LIVE_POD_STATES).order_by().values_list("state").annotate(n=Count("pk"))
    )
    states = dict(live)
    gauge = GaugeMetricFamily("berth_pods", "Live pods by state.", labels=["state"])
    for state in LIVE_POD_STATES:
        gauge.add_metric([str(state)], states.get(state, 0))
    yield gauge


def _cycle_metrics() -> Iterable[Metric]:
    cycles: list[Any] = list(
        Cycle.objects.order_by("-id").values("id", "at", "pending", "observe_ms", "decide_ms", "commit_ms")[
            :CYCLE_WINDOW
        ]
    )
    seconds = GaugeMetricFamily(
        "berth_cycle_seconds", f"Durations of the last {CYCLE_WINDOW} cycles.", labels=["step", "quantile"]
    )
    for step in ("observe", "decide", "commit"):
        durations = sorted(row[f"{step}_ms"] / MILLISECONDS for row in cycles)
        for quantile in (0.5, 0.99, 1.0):
            if durations:
                seconds.add_metric(
                    [step, str(quantile)], durations[_quantile_index(quantile, len(durations))]
                )
    yield seconds
    yield CounterMetricFamily(
        "berth_cycles", "Scheduling cycles so far.", value=cycles[0]["id"] if cycles else 0
    )
    yield GaugeMetricFamily("berth_pending", "Workloads pending after the last cycle.",
                            value=cycles[0]["pending"] if cycles else 0)  # fmt: skip
    yield GaugeMetricFamily("berth_last_cycle_timestamp_seconds", "Start time of the last cycle.",
                            value=cycles[0]["at"].timestamp() if cycles else 0)  # fmt: skip
    lease = Lease.objects.filter(~Q(holder=""), name="scheduler").first()
    yield GaugeMetricFamily("berth_scheduler_lease_expires_timestamp_seconds", "Expiry of the lease.",
                            value=lease.expires_at.timestamp() if lease else 0)  # fmt: skip


def _eviction_metric() -> Metric:
    counts = dict(Eviction.objects.order_by().values_list("kind").annotate(n=Count("pk")))
    counter = CounterMetricFamily("berth_evictions", "Evicted workloads by kind.", labels=["kind"])
    for kind, _ in Eviction.KINDS:
        counter.add_metric([kind], counts.get(kind, 0))
    return counter


def _quantile_index(quantile: float, count: int) -> int:
    return min(count - 1, int(quantile * count))


urlpatterns: list[URLPattern | URLResolver] = [path("", metrics)]
