"""Metrics for Prometheus, computed from rows: every web process returns the same.

Readable with the token of Prometheus (`BERTH_METRICS_TOKEN`), with a platform admin's token of scope admin,
and without a token from the networks in `BERTH_METRICS_NETWORKS`.
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
from rest_framework.request import Request

from berth.core.errors import Unauthenticated
from berth.db.models import Lease
from berth.server.api.schema import operation
from berth.server.api.views import ApiView
from projects.models import Pod, Workload
from projects.models.workloads import LIVE_POD_STATES, Phase
from scheduler.api.metrics.pools import pool_metrics
from scheduler.api.metrics.queues import queue_metrics
from scheduler.api.metrics.services import own_metrics, service_metrics
from scheduler.api.metrics.utilization import use_metrics
from scheduler.models import Cycle, Eviction

TEXT = "text/plain; version=0.0.4; charset=utf-8"
FORWARDED = ("HTTP_FORWARDED", "HTTP_X_FORWARDED_FOR", "HTTP_X_REAL_IP", "HTTP_VIA")
LATEST = 100  # cycles that the durations are taken from
MILLISECONDS = 1000.0
HOW_TO_READ = (
    "Send the metrics token, which the server keeps in BERTH_METRICS_TOKEN or BERTH_HOME/metrics_token, "
    "or a platform admin's token: Authorization: Bearer TOKEN."
)


class Metrics(ApiView):
    @operation("Numbers for Prometheus", media_type="text/plain")
    def get(self, request: Request) -> HttpResponse:
        self.require("administer")
        return measured()

    def permission_denied(
        self, request: Request, message: str | None = None, code: str | None = None
    ) -> Never:
        if not request.user.is_authenticated:
            raise Unauthenticated(HOW_TO_READ)
        super().permission_denied(request, message, code)


class Rows(Collector):
    def collect(self) -> Iterable[Metric]:
        yield from _work()
        yield from pool_metrics()
        yield from use_metrics()
        yield from _cycles()
        yield _evictions()
        yield from queue_metrics()
        yield from service_metrics()
        yield from own_metrics()


def metrics(request: HttpRequest) -> HttpResponse:
    if has_metrics_token(request) or is_from_allowed_network(request):
        return measured()
    answer: HttpResponse = Metrics.as_view()(request)
    return answer


def has_metrics_token(request: HttpRequest) -> bool:
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    return scheme.lower() == "bearer" and constant_time_compare(token.strip(), settings.BERTH_METRICS_TOKEN)


def is_from_allowed_network(request: HttpRequest) -> bool:
    """False for a request that a proxy passed on: its sender may claim any address."""
    if any(name in request.META for name in FORWARDED):
        return False
    try:
        address = ip_address(request.META.get("REMOTE_ADDR", ""))
    except ValueError:
        return False
    address = getattr(address, "ipv4_mapped", None) or address
    return any(address in network for network in settings.BERTH_METRICS_NETWORKS)


def measured() -> HttpResponse:
    registry = CollectorRegistry()
    registry.register(Rows())
    return HttpResponse(generate_latest(registry), TEXT)


def _work() -> Iterable[Metric]:
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


def _cycles() -> Iterable[Metric]:
    cycles: list[Any] = list(
        Cycle.objects.order_by("-id").values("id", "at", "pending", "observe_ms", "decide_ms", "commit_ms")[
            :LATEST
        ]
    )
    seconds = GaugeMetricFamily(
        "berth_cycle_seconds", f"Durations of the last {LATEST} cycles.", labels=["step", "quantile"]
    )
    for step in ("observe", "decide", "commit"):
        durations = sorted(row[f"{step}_ms"] / MILLISECONDS for row in cycles)
        for quantile in (0.5, 0.99, 1.0):
            if durations:
                seconds.add_metric([step, str(quantile)], durations[_place(quantile, len(durations))])
    yield seconds
    yield CounterMetricFamily("berth_cycles", "Cycles so far.", value=cycles[0]["id"] if cycles else 0)
    yield GaugeMetricFamily("berth_pending", "Workloads pending after the last cycle.",
                            value=cycles[0]["pending"] if cycles else 0)  # fmt: skip
    yield GaugeMetricFamily("berth_last_cycle_timestamp_seconds", "When the last cycle began.",
                            value=cycles[0]["at"].timestamp() if cycles else 0)  # fmt: skip
    lease = Lease.objects.filter(~Q(holder=""), name="scheduler").first()
    yield GaugeMetricFamily("berth_scheduler_lease_expires_timestamp_seconds", "When the lease expires.",
                            value=lease.expires_at.timestamp() if lease else 0)  # fmt: skip


def _evictions() -> Metric:
    counts = dict(Eviction.objects.order_by().values_list("kind").annotate(n=Count("pk")))
    counter = CounterMetricFamily("berth_evictions", "Evicted workloads by kind.", labels=["kind"])
    for kind, _ in Eviction.KINDS:
        counter.add_metric([kind], counts.get(kind, 0))
    return counter


def _place(quantile: float, count: int) -> int:
    return min(count - 1, int(quantile * count))


urlpatterns: list[URLPattern | URLResolver] = [path("", metrics)]
