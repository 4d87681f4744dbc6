"""Pages that list and show inference services."""

from dataclasses import dataclass
from typing import Any

from django.db.models import Q
from django.http import HttpResponse, StreamingHttpResponse
from django.utils import timezone
from django.views.decorators.http import require_GET

from berth.server.api.transport.streaming import csv_response
from berth.server.web.lists.tables import Column, list_query, requested_csv, table_state
from berth.server.web.pages import Request, page, signed_in
from projects.access import Action, may
from projects.elastic.autoscale import load_window, snapshot
from projects.engine.replicas.conditions import conditions
from projects.engine.scaling import FINAL
from projects.models import InferenceEngine, Pod, ScaleRequest, Service
from projects.models.workloads import ENDED_PHASES
from projects.service_selectors import find_service, services
from projects.services.inference.autoscalers import load_config
from projects.services.inference.rules import service_settings
from projects.web.services.charts import CSV_HEADERS, build_charts, csv_rows
from projects.web.services.conditions import condition_row
from projects.web.services.serving import EngineStatus, engine_status, serving_status

PROGRESS_STATES = {
    "scale_out": ("PENDING", "CREATING", "HEALTH_CHECKING", "WEIGHT_SYNCING", "READY", "ACTIVE"),
    "scale_in": ("PENDING", "DRAINING", "REMOVING", "COMPLETED"),
}
MAX_ROWS = 20

ServiceRow = tuple[Service, ScaleRequest | None]  # a service with its active request
COLUMNS: tuple[Column[ServiceRow], ...] = (
    Column("name", "Service", lambda row: row[0].workload.name, order="workload__name"),
    Column("project", "Project", lambda row: row[0].workload.project.name, in_file=True),
    Column("state", "State", lambda row: row[0].workload.phase, order="workload__phase"),
    Column(
        "engines", "Serving", lambda row: _engine_counts(row[0])[0], "engines", order="active", number=True
    ),
    Column("total", "Total", lambda row: _engine_counts(row[0])[1], "engines", in_file=True),
    Column("initial", "Initial", lambda row: row[0].initial_engines, "engines", in_file=True),
    Column("model", "Model", lambda row: row[0].model_name, order="model_name"),
    Column("created", "Created", lambda row: row[0].created_at, order="created_at"),
    Column("under-way", "In progress", lambda row: row[1].status if row[1] else None),
    Column("autoscaler", "Autoscaler", lambda row: "on" if row[0].autoscaler.enabled else "off"),
)


def _engine_counts(service: Any) -> tuple[int, int]:
    """Return the counts of active engines and of all engines, which the selector has annotated."""
    return service.active, service.total


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
    listing = list_query(request, COLUMNS, rows, _with_requests, file_name="services", default="-created")
    if file := requested_csv(request, listing):
        return file
    context = {"listing": listing, "rows": listing.rows}
    return page(request, "projects/services/list.html", context, inner="projects/services/rows.html")


def _with_requests(rows: list[Service]) -> list[ServiceRow]:
    active_requests = ScaleRequest.objects.filter(service__in=[row.pk for row in rows]).exclude(
        status__in=FINAL
    )
    requests_by_service = {row.service_id: row for row in active_requests}
    return [(row, requests_by_service.get(row.pk)) for row in rows]


@signed_in
@require_GET
def detail(request: Request, service: str) -> HttpResponse | StreamingHttpResponse:
    row = find_service(request.actor, service)
    if request.GET.get("format") == "csv":
        return csv_response(
            request, f"metrics-of-{row.workload.name}", CSV_HEADERS, csv_rows(row, timezone.now())
        )
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
    engines = _engines(service)
    return {
        "service": service,
        "workload": service.workload,
        "settings": service_settings(service.workload),
        "engines": engines,
        "serving": serving_status(service.workload, [row.engine for row in engines]),
        "failed_engines": service.engines.filter(state="FAILED").order_by("-ended_at", "-number")[:MAX_ROWS],
        "running": running and _progress(running),
        "requests": requests,
        "scaler": scaler,
        "config": config,
        "conditions": [condition_row(condition) for condition in conditions(window, config, now.timestamp())],
        "figures": snapshot(window, config),
        "charts": build_charts(service, config, now),
        "history": service.scalings.order_by("-id")[:MAX_ROWS],
        "may_operate": may(request.actor, Action.OPERATE, service.workload) and not ended,
        "ended": ended,
    }


@dataclass(frozen=True, slots=True)
class EngineRow:
    engine: InferenceEngine
    pod: Pod | None
    status: EngineStatus


def _engines(service: Service) -> list[EngineRow]:
    rows = list(service.engines.filter(ended_at__isnull=True).select_related("workload").order_by("number"))
    pods = Pod.objects.filter(pk__in=[row.pod_id for row in rows if row.pod_id])
    pods_by_id = {pod.pk: pod for pod in pods.select_related("node", "allocation")}
    return [
        EngineRow(row, pods_by_id.get(row.pod_id) if row.pod_id else None, engine_status(row)) for row in rows
    ]


def _progress(request: ScaleRequest) -> dict[str, Any]:
    """Return a request's states with the time when each was reached, and the request's pending engines."""
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
    return {
        "request": request,
        "steps": [(state, reached_at.get(state), state == request.status) for state in state_names],
        "engines": engines,
        "pending_engines": [
            engine for engine in engines if engine.state == "CREATING" and engine.workload is not None
        ],
    }
