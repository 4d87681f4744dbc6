"""REST endpoints for a service's autoscaler."""

from typing import Annotated, Any, Literal
from uuid import UUID

from django.utils import timezone
from pydantic import Field
from rest_framework.request import Request
from rest_framework.response import Response

from berth.server.api.idempotency import idempotent
from berth.server.api.pagination import NEWEST, filter_by, map_rows, page
from berth.server.api.requests import (
    Body,
    ListQuery,
    Query,
    parse_body,
    parse_document,
    parse_query,
)
from berth.server.api.responses import ResponseModel
from berth.server.api.schema import operation
from projects.api.services.scaling_schemas import RequestStatusName, to_timestamp
from projects.api.services.views import ServiceView
from projects.elastic.autoscale import last_scale_request, load_window, metrics_snapshot
from projects.engine.replicas.conditions import Condition, conditions
from projects.engine.scaling import FINAL
from projects.models import Autoscaler, MetricsPoint, Scaling, Service
from projects.services.inference import autoscalers
from projects.services.inference.autoscalers import load_config
from projects.services.inference.rules import engine_count

ScalingActionName = Literal["scale_out", "scale_in"]
STALE_AFTER_SECONDS = 60.0
NOT_EVALUATED = "The autoscaler has not been evaluated recently. Check that the services process is running."


class AutoscalerEnableBody(Body):
    enabled: bool


class AutoscalerSettingsBody(Body):
    """Autoscaler settings as JSON or YAML. Omitted keys take their default values."""

    model_config = {**Body.model_config, "extra": "allow"}


class ScaleHistoryQuery(Query):
    limit: Annotated[int, Field(ge=1, le=1000)] = 100
    action: ScalingActionName | None = None


class AutoscalerSettingsResponse(ResponseModel):
    enabled: bool
    settings: dict[str, Any]


class ScaleDecisionResponse(ResponseModel):
    action: Literal["scale_out", "scale_in", "none"]
    delta: int
    reason: str


class AutoscalerStatusResponse(ResponseModel):
    enabled: bool
    running: bool
    current_engines: int
    min_engines: int
    max_engines: int
    last_scale_time: float | None
    last_scale_action: ScalingActionName | None
    last_decision: ScaleDecisionResponse | None
    pending_requests: list[UUID]
    recent_metrics: dict[str, Any]
    error: str


class AutoscalerConditionResponse(ResponseModel):
    type: ScalingActionName
    triggered: bool
    met: bool | None = Field(description="Whether the condition is met now; null if too few engines report.")
    value: float | None
    threshold: float
    duration_secs: float
    held_secs: float
    since: float | None
    reporting: int


class AutoscalerConditionsResponse(ResponseModel):
    conditions: dict[str, AutoscalerConditionResponse]
    metrics: dict[str, Any]


class AutoscalerHealthResponse(ResponseModel):
    status: Literal["healthy", "unhealthy"]
    enabled: bool
    running: bool
    last_evaluated_at: float | None
    message: str


class AutoscalingActionResponse(ResponseModel):
    """Scaling action of an autoscaler."""

    request_id: UUID | None
    action: ScalingActionName
    status: RequestStatusName
    triggered_at: float
    completed_at: float | None
    from_engines: int
    to_engines: int
    delta: int
    reason: str
    triggered_conditions: list[str]
    metrics_snapshot: dict[str, Any]
    error_message: str | None


class ScaleHistoryResponse(ResponseModel):
    history: list[AutoscalingActionResponse]
    total_count: int
    action_filter: ScalingActionName | None
    limit: int


class MetricsPointResponse(ResponseModel):
    at: float
    engines: int
    reporting: int
    metrics: dict[str, Any]
    by_engine: dict[str, Any]


class ServiceAutoscaler(ServiceView):
    @operation("Get autoscaler settings", response=AutoscalerSettingsResponse)
    def get(self, request: Request, service: str) -> Response:
        return Response(_serialize_settings(self.service(service).autoscaler))

    @operation(
        "Replace autoscaler settings", body=AutoscalerSettingsBody, response=AutoscalerSettingsResponse
    )
    def put(self, request: Request, service: str) -> Response:
        row = self.service(service)
        return Response(
            _serialize_settings(
                autoscalers.configure(actor=self.actor, service=row, settings=parse_document(request))
            )
        )


class AutoscalerStatus(ServiceView):
    @operation("Get autoscaler status", response=AutoscalerStatusResponse)
    def get(self, request: Request, service: str) -> Response:
        return Response(build_status(self.service(service)))


class AutoscalerEnable(ServiceView):
    @operation(
        "Enable or disable an autoscaler", body=AutoscalerEnableBody, response=AutoscalerStatusResponse
    )
    @idempotent
    def post(self, request: Request, service: str) -> Response:
        body, row = parse_body(request, AutoscalerEnableBody), self.service(service)
        autoscalers.enable(actor=self.actor, service=row, enabled=body.enabled)
        return Response(build_status(self.service(service)))


class AutoscalerConditions(ServiceView):
    @operation("List autoscaler conditions", response=AutoscalerConditionsResponse)
    def get(self, request: Request, service: str) -> Response:
        row = self.service(service).autoscaler
        config, window = load_config(row), load_window(row)
        now = timezone.now().timestamp()
        return Response(
            AutoscalerConditionsResponse(
                conditions={
                    condition.name: _serialize_condition(condition)
                    for condition in conditions(window, config, now)
                },
                metrics=metrics_snapshot(window, config),
            )
        )


class AutoscalerHealth(ServiceView):
    @operation("Get autoscaler health", response=AutoscalerHealthResponse)
    def get(self, request: Request, service: str) -> Response:
        service_row = self.service(service)
        row, running = service_row.autoscaler, is_autoscaler_running(service_row)
        message = row.last_error or ("" if running else NOT_EVALUATED)
        return Response(
            AutoscalerHealthResponse(
                status="healthy" if running and not row.last_error else "unhealthy", enabled=row.enabled,
                running=running,
                last_evaluated_at=to_timestamp(row.scraped_at) if row.scraped_at else None, message=message,
            )
        )  # fmt: skip


class ScaleHistory(ServiceView):
    @operation(
        "List autoscaler actions, newest first",
        query=ScaleHistoryQuery,
        response=ScaleHistoryResponse,
    )
    def get(self, request: Request, service: str) -> Response:
        query = parse_query(request, ScaleHistoryQuery)
        rows = self.service(service).scalings.select_related("request").order_by("-id")
        rows = filter_by(rows, action=query.action)
        return Response(
            ScaleHistoryResponse(
                history=[_serialize_scaling(row) for row in rows[: query.limit]], total_count=rows.count(),
                action_filter=query.action, limit=query.limit,
            )
        )  # fmt: skip


class ServiceMetrics(ServiceView):
    @operation("List a service's metrics, newest first", query=ListQuery, page=MetricsPointResponse)
    def get(self, request: Request, service: str) -> Response:
        query = parse_query(request, ListQuery)
        return Response(page(self.service(service).points.all(), query, NEWEST, map_rows(_serialize_point)))


def is_autoscaler_running(service: Service) -> bool:
    """Return whether the autoscaler's last scrape is recent enough for its metrics interval."""
    row = service.autoscaler
    if service.ended_at is not None or row.scraped_at is None:
        return False
    max_age_seconds = max(STALE_AFTER_SECONDS, 3 * load_config(row).metrics_interval_secs)
    return (timezone.now() - row.scraped_at).total_seconds() < max_age_seconds


def build_status(service: Service) -> AutoscalerStatusResponse:
    row, last = service.autoscaler, last_scale_request(service)
    config = load_config(row)
    pending = service.requests.exclude(status__in=FINAL).values_list("pk", flat=True)
    return AutoscalerStatusResponse(
        enabled=row.enabled,
        running=is_autoscaler_running(service),
        current_engines=engine_count(service),
        min_engines=config.min_engines,
        max_engines=config.max_engines,
        last_scale_time=to_timestamp(last.created_at) if last else None,
        last_scale_action=last.direction if last else None,  # type: ignore[arg-type]
        last_decision=ScaleDecisionResponse(**row.last_decision) if row.last_decision else None,
        pending_requests=list(pending),
        recent_metrics=metrics_snapshot(load_window(row), config),
        error=row.last_error,
    )


def _serialize_settings(row: Autoscaler) -> AutoscalerSettingsResponse:
    return AutoscalerSettingsResponse(enabled=row.enabled, settings=row.settings)


def _serialize_condition(condition: Condition) -> AutoscalerConditionResponse:
    return AutoscalerConditionResponse.from_row(
        condition,
        type="scale_out" if condition.scales_out else "scale_in",
        met=condition.is_met,
        duration_secs=condition.duration,
        held_secs=condition.held,
    )


def _serialize_scaling(row: Scaling) -> AutoscalingActionResponse:
    """Serialize a scaling action. An unfinished action has the status of its scale request."""
    request = row.request
    status = request.status if request is not None and row.completed_at is None else row.status
    return AutoscalingActionResponse.from_row(
        row,
        status=status,
        triggered_at=to_timestamp(row.triggered_at),
        completed_at=to_timestamp(row.completed_at) if row.completed_at else None,
        error_message=row.error_message or None,
    )


def _serialize_point(row: MetricsPoint) -> MetricsPointResponse:
    return MetricsPointResponse.from_row(row, at=to_timestamp(row.at), metrics=row.values)
