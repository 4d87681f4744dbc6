"""REST endpoints of a service's autoscaler."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal
from uuid import UUID

from django.utils import timezone
from pydantic import Field
from rest_framework.request import Request
from rest_framework.response import Response

from berth.server.api.idempotency import idempotent
from berth.server.api.pagination import NEWEST, page
from berth.server.api.requests import (
    Body,
    ListQuery,
    Query,
    no_query,
    parse_body,
    parse_document,
    parse_query,
)
from berth.server.api.responses import Answer
from berth.server.api.schema import operation
from projects.api.services.scaling_schemas import StatusWord, seconds
from projects.api.services.views import ServiceView
from projects.elastic.autoscale import last_scaling, snapshot, window_of
from projects.engine.replicas.conditions import Condition, conditions
from projects.engine.scaling import FINAL
from projects.models import Autoscaler, MetricsPoint, Scaling, Service
from projects.services.inference import autoscalers
from projects.services.inference.autoscalers import config_of
from projects.services.inference.rules import engine_count

ActionWord = Literal["scale_out", "scale_in"]
STALE_AFTER_SECONDS = 60.0


class AutoscalerEnableBody(Body):
    enabled: bool


class AutoscalerSettingsBody(Body):
    """The settings of an autoscaler as JSON or YAML; missing keys have their defaults."""

    model_config = {**Body.model_config, "extra": "allow"}


class ScaleHistoryQuery(Query):
    limit: Annotated[int, Field(ge=1, le=1000)] = 100
    action: ActionWord | None = None


class AutoscalerSettingsAnswer(Answer):
    enabled: bool
    settings: dict[str, Any]


class ScaleDecisionAnswer(Answer):
    action: Literal["scale_out", "scale_in", "none"]
    delta: int
    reason: str


class AutoscalerStatusAnswer(Answer):
    enabled: bool
    running: bool
    current_engines: int
    min_engines: int
    max_engines: int
    last_scale_time: float | None
    last_scale_action: ActionWord | None
    last_decision: ScaleDecisionAnswer | None
    pending_requests: list[UUID]
    recent_metrics: dict[str, Any]
    error: str


class AutoscalerConditionAnswer(Answer):
    type: ActionWord
    triggered: bool
    met: bool | None = Field(description="Whether it is met now; null if too few engines report.")
    value: float | None
    threshold: float
    duration_secs: float
    held_secs: float
    since: float | None
    reporting: int


class AutoscalerConditionsAnswer(Answer):
    conditions: dict[str, AutoscalerConditionAnswer]
    metrics: dict[str, Any]


class AutoscalerHealthAnswer(Answer):
    status: Literal["healthy", "unhealthy"]
    enabled: bool
    running: bool
    last_evaluated_at: float | None
    message: str


class AutoscalingAnswer(Answer):
    request_id: UUID | None
    action: ActionWord
    status: StatusWord
    triggered_at: float
    completed_at: float | None
    from_engines: int
    to_engines: int
    delta: int
    reason: str
    triggered_conditions: list[str]
    metrics_snapshot: dict[str, Any]
    error_message: str | None


class ScaleHistoryAnswer(Answer):
    history: list[AutoscalingAnswer]
    total_count: int
    action_filter: ActionWord | None
    limit: int


class MetricsPointAnswer(Answer):
    at: float
    engines: int
    reporting: int
    metrics: dict[str, Any]
    by_engine: dict[str, Any]


class AutoscalerOfService(ServiceView):
    @operation("Get the settings of an autoscaler", answer=AutoscalerSettingsAnswer)
    def get(self, request: Request, service: str) -> Response:
        no_query(request)
        return Response(_settings(self.service(service).autoscaler))

    @operation(
        "Set the settings of an autoscaler", body=AutoscalerSettingsBody, answer=AutoscalerSettingsAnswer
    )
    def put(self, request: Request, service: str) -> Response:
        no_query(request)
        row = self.service(service)
        return Response(
            _settings(
                autoscalers.configure(acting=self.acting, service=row, settings=parse_document(request))
            )
        )


class AutoscalerStatus(ServiceView):
    @operation("Get the status of an autoscaler", answer=AutoscalerStatusAnswer)
    def get(self, request: Request, service: str) -> Response:
        no_query(request)
        return Response(status_of(self.service(service)))


class AutoscalerEnable(ServiceView):
    @operation("Enable or disable an autoscaler", body=AutoscalerEnableBody, answer=AutoscalerStatusAnswer)
    @idempotent
    def post(self, request: Request, service: str) -> Response:
        no_query(request)
        body, row = parse_body(request, AutoscalerEnableBody), self.service(service)
        autoscalers.enable(acting=self.acting, service=row, enabled=body.enabled)
        return Response(status_of(self.service(service)))


class AutoscalerConditions(ServiceView):
    @operation("List the conditions of an autoscaler", answer=AutoscalerConditionsAnswer)
    def get(self, request: Request, service: str) -> Response:
        no_query(request)
        row = self.service(service).autoscaler
        config, window = config_of(row), window_of(row)
        now = timezone.now().timestamp()
        return Response(
            AutoscalerConditionsAnswer(
                conditions={one.name: _condition(one) for one in conditions(window, config, now)},
                metrics=snapshot(window, config),
            )
        )


class AutoscalerHealth(ServiceView):
    @operation("Get the health of an autoscaler", answer=AutoscalerHealthAnswer)
    def get(self, request: Request, service: str) -> Response:
        no_query(request)
        service_row = self.service(service)
        row, running = service_row.autoscaler, is_running(service_row)
        message = row.last_error or ("" if running else "Not evaluated recently. Check the scheduler.")
        return Response(
            AutoscalerHealthAnswer(
                status="healthy" if running and not row.last_error else "unhealthy", enabled=row.enabled,
                running=running,
                last_evaluated_at=seconds(row.scraped_at) if row.scraped_at else None, message=message,
            )
        )  # fmt: skip


class ScaleHistory(ServiceView):
    @operation(
        "List the scalings of an autoscaler, newest first", query=ScaleHistoryQuery, answer=ScaleHistoryAnswer
    )
    def get(self, request: Request, service: str) -> Response:
        query = parse_query(request, ScaleHistoryQuery)
        rows = self.service(service).scalings.select_related("request").order_by("-id")
        if query.action is not None:
            rows = rows.filter(action=query.action)
        return Response(
            ScaleHistoryAnswer(
                history=[_scaling(row) for row in rows[: query.limit]], total_count=rows.count(),
                action_filter=query.action, limit=query.limit,
            )
        )  # fmt: skip


class MetricsOfService(ServiceView):
    @operation("List the metrics of a service, newest first", query=ListQuery, page=MetricsPointAnswer)
    def get(self, request: Request, service: str) -> Response:
        query = parse_query(request, ListQuery)
        return Response(page(self.service(service).points.all(), query, NEWEST, _points))


def is_running(service: Service) -> bool:
    """Return whether the autoscaler is evaluated as often as its settings say."""
    row = service.autoscaler
    if service.ended_at is not None or row.scraped_at is None:
        return False
    patience = max(STALE_AFTER_SECONDS, 3 * config_of(row).metrics_interval_secs)
    return (timezone.now() - row.scraped_at).total_seconds() < patience


def status_of(service: Service) -> AutoscalerStatusAnswer:
    row, last = service.autoscaler, last_scaling(service)
    config = config_of(row)
    pending = service.requests.exclude(status__in=FINAL).values_list("pk", flat=True)
    return AutoscalerStatusAnswer(
        enabled=row.enabled, running=is_running(service), current_engines=engine_count(service),
        min_engines=config.min_engines, max_engines=config.max_engines,
        last_scale_time=seconds(last.created_at) if last else None,
        last_scale_action=last.direction if last else None,  # type: ignore[arg-type]
        last_decision=ScaleDecisionAnswer(**row.last_decision) if row.last_decision else None,
        pending_requests=list(pending), recent_metrics=snapshot(window_of(row), config), error=row.last_error,
    )  # fmt: skip


def _settings(row: Autoscaler) -> AutoscalerSettingsAnswer:
    return AutoscalerSettingsAnswer(enabled=row.enabled, settings=row.settings)


def _condition(one: Condition) -> AutoscalerConditionAnswer:
    return AutoscalerConditionAnswer(
        type="scale_out" if one.scales_out else "scale_in", triggered=one.triggered, met=one.holds,
        value=one.value, threshold=one.threshold, duration_secs=one.duration, held_secs=one.held,
        since=one.since, reporting=one.reporting,
    )  # fmt: skip


def _scaling(row: Scaling) -> AutoscalingAnswer:
    """Return an action of the autoscaler. Until it is completed, its status is that of its request."""
    request = row.request
    status = request.status if request is not None and row.completed_at is None else row.status
    return AutoscalingAnswer(
        request_id=row.request_id, action=row.action, status=status,  # type: ignore[arg-type]
        triggered_at=seconds(row.triggered_at),
        completed_at=seconds(row.completed_at) if row.completed_at else None,
        from_engines=row.from_engines, to_engines=row.to_engines, delta=row.delta, reason=row.reason,
        triggered_conditions=row.triggered_conditions, metrics_snapshot=row.metrics_snapshot,
        error_message=row.error_message or None,
    )  # fmt: skip


def _points(rows: Sequence[MetricsPoint]) -> list[Any]:
    return [
        MetricsPointAnswer(
            at=seconds(row.at), engines=row.engines, reporting=row.reporting, metrics=row.values,
            by_engine=row.by_engine,
        )
        for row in rows
    ]  # fmt: skip
