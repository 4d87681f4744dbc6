"""Pages that list and show inference services."""

from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django.db.models import Q
from django.http import HttpResponse, StreamingHttpResponse
from django.utils import timezone
from django.views.decorators.http import require_GET

from berth.core.values.amounts import MILLI
from berth.server.api.transport.streaming import csv_response
from berth.server.web.lists.tables import Column, list_query, requested_csv, table_state
from berth.server.web.pages import Request, page, signed_in
from projects.access import Action, may, visible_pools
from projects.elastic.autoscale import load_window
from projects.engine.replicas.conditions import conditions
from projects.engine.scaling import FINAL
from projects.models import InferenceEngine, Pod, ScaleRequest, Service
from projects.models.workloads import ENDED_PHASES
from projects.queries.services import find_service, services
from projects.services.inference.autoscalers import load_config
from projects.services.inference.rules import describe_active_request, service_settings
from projects.web.services.charts import (
    CSV_HEADERS,
    SPANS,
    LatestMetrics,
    csv_rows,
    latest_metrics,
    metrics_over_time,
    span_or_default,
)
from projects.web.services.conditions import condition_row, explain_unknown_states, measured_at
from projects.web.services.list_queries import SERVING_STATES, annotate_load, filter_by_state
from projects.web.services.serving import EngineStatus, ServingStatus, engine_status, serving_status

PROGRESS_STATES = {
    "scale_out": ("PENDING", "CREATING", "HEALTH_CHECKING", "WEIGHT_SYNCING", "READY", "ACTIVE"),
    "scale_in": ("PENDING", "DRAINING", "REMOVING", "COMPLETED"),
}
MAX_ROWS = 20
TREND_SPAN = "1h"
TABS = (("overview", "Overview"), ("autoscaler", "Autoscaler and scaling"), ("metrics", "Metrics"))


@dataclass(frozen=True, slots=True)
class ServiceRow:
    """Row of the service list: a service, its status and active request, and its latest metrics."""

    service: Any  # service with its numbers of active engines and of all engines
    serving: ServingStatus
    request: ScaleRequest | None
    metrics: LatestMetrics
    autoscaler_limits: tuple[int, int]
    gpu_milli: int  # milli-GPUs allocated to the service's engines

    @property
    def running(self) -> int | None:
        return self.metrics.values.get("total_running_reqs")

    @property
    def queued(self) -> int | None:
        return self.metrics.values.get("total_queue_reqs")

    @property
    def queue_time(self) -> float | None:
        """95th percentile of the queue time in seconds, or None if unknown."""
        value = self.metrics.values.get("queue_time_p95")
        return None if value is None else round(value, 3)


def _load_column(
    key: str, title: str, value: Callable[[ServiceRow], Any], unit: str = "", **options: Any
) -> Column[ServiceRow]:
    """Return a column that sorts by the latest value of a metric, largest first."""
    return Column(key, title, value, unit, key.replace("-", "_"), True, is_largest_first=True, **options)


COLUMNS: tuple[Column[ServiceRow], ...] = (
    Column("name", "Service", lambda row: row.service.workload.name, order="workload__name"),
    Column("project", "Project", lambda row: row.service.workload.project.name, is_csv_only=True),
    Column("serving", "Serving", lambda row: row.serving.text, order="active"),
    Column("state", "State", lambda row: row.service.workload.phase, is_csv_only=True),
    Column(
        "engines",
        "Active engines",
        lambda row: row.service.active,
        order="active",
        number=True,
        page_title="Engines",
    ),
    Column("total", "Total", lambda row: row.service.total, "engines", is_csv_only=True),
    Column("initial", "Initial", lambda row: row.service.initial_engines, "engines", is_csv_only=True),
    Column("gpus", "GPUs", lambda row: row.gpu_milli / MILLI, number=True),
    _load_column("running", "Running requests", lambda row: row.running, page_title="Running"),
    _load_column("queued", "Queued requests", lambda row: row.queued, page_title="Queued"),
    _load_column(
        "queue-time",
        "Queue time p95",
        lambda row: row.queue_time,
        "s",
        page_title="Queue p95",
        is_secondary=True,
    ),
    Column("model", "Model", lambda row: row.service.model_name, order="model_name", is_secondary=True),
    Column("created", "Created", lambda row: row.service.created_at, order="created_at", is_csv_only=True),
    Column(
        "under-way", "In progress", lambda row: row.request.status if row.request else None, is_csv_only=True
    ),
    Column("autoscaler", "Autoscaler", lambda row: "on" if row.service.autoscaler.enabled else "off"),
)


@signed_in
@require_GET
def index(request: Request) -> HttpResponse | StreamingHttpResponse:
    search = table_state(request.GET, "")["search"]
    rows = services(request.actor)
    for word in search.split():
        rows = rows.filter(
            Q(workload__name__icontains=word)
            | Q(workload__project__name__icontains=word)
            | Q(model_name__icontains=word)
        )
    if state := request.GET.get("state", ""):
        rows = filter_by_state(rows, state)
    rows = annotate_load(rows, timezone.now())
    listing = list_query(request, COLUMNS, rows, _service_rows, file_name="services", default="-created")
    if file := requested_csv(request, listing):
        return file
    has_pools = bool(listing.rows) or visible_pools(request.actor).exists()
    context = {
        "listing": listing,
        "rows": listing.rows,
        "states": SERVING_STATES,
        "state": state,
        "has_pools": has_pools,
        "may_create_pool": not has_pools and may(request.actor, Action.ADMINISTER),
    }
    return page(request, "projects/services/list.html", context, inner="projects/services/rows.html")


def _service_rows(rows: list[Service]) -> list[ServiceRow]:
    engines_by_service: dict[int, list[InferenceEngine]] = defaultdict(list)
    live_engines = InferenceEngine.objects.filter(service__in=[row.pk for row in rows], ended_at__isnull=True)
    for engine in live_engines.select_related("workload"):
        engines_by_service[engine.service_id].append(engine)
    active_requests = ScaleRequest.objects.filter(service__in=[row.pk for row in rows]).exclude(
        status__in=FINAL
    )
    requests_by_service = {row.service_id: row for row in active_requests}
    gpus = _allocated_gpus([engine for engines in engines_by_service.values() for engine in engines])
    configs = {row.pk: load_config(row.autoscaler) for row in rows}
    metrics = latest_metrics(configs, timezone.now())
    return [
        ServiceRow(
            row,
            serving_status(row.workload, engines_by_service[row.pk]),
            requests_by_service.get(row.pk),
            metrics.get(row.pk, LatestMetrics({})),
            (configs[row.pk].min_engines, configs[row.pk].max_engines),
            gpus[row.pk],
        )
        for row in rows
    ]


def _allocated_gpus(engines: list[InferenceEngine]) -> Counter[int]:
    services_by_pod = {engine.pod_id: engine.service_id for engine in engines if engine.pod_id}
    pods = Pod.objects.filter(pk__in=services_by_pod, allocation__released_at=None).select_related(
        "allocation"
    )
    gpus: Counter[int] = Counter()
    for pod in pods:
        gpus[services_by_pod[pod.pk]] += pod.allocation.gpu_milli_total
    return gpus


@signed_in
@require_GET
def detail(request: Request, service: str) -> HttpResponse | StreamingHttpResponse:
    row = find_service(request.actor, service)
    if request.GET.get("format") == "csv":
        span = span_or_default(request.GET.get("span", ""))
        name = f"metrics-of-{row.workload.name}-{span}"
        return csv_response(request, name, CSV_HEADERS, csv_rows(row, timezone.now(), span))
    return page(
        request,
        "projects/services/detail.html",
        service_context(request, row),
        inner="projects/services/detail_body.html",
    )


def service_context(request: Request, service: Service) -> dict[str, Any]:
    now, scaler = timezone.now(), service.autoscaler
    config, window = load_config(scaler), load_window(scaler)
    requests = list(
        service.requests.order_by("-created_at", "-id").prefetch_related(
            "steps", "added__workload", "removed"
        )[:MAX_ROWS]
    )
    running = next((request for request in requests if not request.is_final), None)
    ended = service.workload.phase in ENDED_PHASES
    engines = _engine_rows(service)
    measured = measured_at(window, now)
    is_fresh = measured is not None and (now - measured).total_seconds() <= config.max_sample_age
    # Conditions and charts show the latest measurement. If it is old, they show the last state.
    evaluated = conditions(window, config, now.timestamp() if measured is None else measured.timestamp())
    condition_rows = [condition_row(row, config, is_fresh=is_fresh) for row in evaluated]
    tab = request.GET.get("tab", "")
    tab = tab if tab in dict(TABS) else TABS[0][0]
    return {
        "service": service,
        "workload": service.workload,
        "tabs": TABS,
        "tab": tab,
        "settings": service_settings(service.workload),
        "engines": engines,
        "serving": serving_status(service.workload, [row.engine for row in engines]),
        "failed_engines": service.engines.filter(state="FAILED").order_by("-ended_at", "-number")[:MAX_ROWS],
        "running": running and _request_progress(running),
        "scaling_text": describe_active_request(running) if running else "",
        "requests": requests,
        "scaler": scaler,
        "config": config,
        "conditions": condition_rows,
        "has_condition_states": any(row["state"] != "unknown" for row in condition_rows),
        "measured": measured,
        "figures": latest_metrics({service.pk: config}, now).get(service.pk),
        "silence": explain_unknown_states(evaluated, measured, is_fresh=is_fresh)
        if scaler.enabled and not ended
        else "",
        "is_fresh": is_fresh,
        "course": metrics_over_time(service, config, now, request.GET.get("span", ""))
        if tab == "metrics"
        else None,
        "spans": SPANS,
        "trends": {chart.key: chart for chart in metrics_over_time(service, config, now, TREND_SPAN).charts}
        if tab == "overview"
        else {},
        "synced_engines": sum(
            bool(service.weight_version) and row.engine.weight_version == service.weight_version
            for row in engines
        ),
        "history": service.scalings.order_by("-id")[:MAX_ROWS],
        "may_operate": may(request.actor, Action.OPERATE, service.workload) and not ended,
        "ended": ended,
    }


@dataclass(frozen=True, slots=True)
class EngineRow:
    engine: InferenceEngine
    pod: Pod | None
    status: EngineStatus


def _engine_rows(service: Service) -> list[EngineRow]:
    rows = list(service.engines.filter(ended_at__isnull=True).select_related("workload").order_by("number"))
    pods = Pod.objects.filter(pk__in=[row.pod_id for row in rows if row.pod_id])
    pods_by_id = {pod.pk: pod for pod in pods.select_related("node", "allocation")}
    return [
        EngineRow(row, pods_by_id.get(row.pod_id) if row.pod_id else None, engine_status(row)) for row in rows
    ]


def _request_progress(request: ScaleRequest) -> dict[str, Any]:
    reached_at = {step.status: step.at for step in request.steps.all()}
    state_names = list(PROGRESS_STATES[request.direction])
    if request.mode == "external" and request.direction == "scale_out":
        state_names[1] = "CONNECTING"
    if request.status == "ROLLING_BACK":
        state_names = [*reached_at, request.ends_as]
    engines = sorted(
        request.added.all() if request.direction == "scale_out" else request.removed.all(),
        key=lambda engine: engine.number,
    )
    title = f"{request.get_direction_display()} in progress"
    if request.status == "ROLLING_BACK":
        verb = "Cancelling" if request.ends_as == "CANCELLED" else "Rolling back"
        title = f"{verb} the {request.get_direction_display().lower()}"
    return {
        "request": request,
        "title": title,
        "steps": [(state, reached_at.get(state), state == request.status) for state in state_names],
        "engines": engines,
        "pending_engines": [
            engine
            for engine in engines
            if engine.state == "CREATING" and engine.workload is not None and request.status != "ROLLING_BACK"
        ],
    }
