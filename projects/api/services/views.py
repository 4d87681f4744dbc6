"""REST endpoints for inference services and their engines."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from rest_framework.request import Request
from rest_framework.response import Response

from berth.core.errors import Invalid
from berth.db.queries.known_names import check_names
from berth.server.api.idempotency import idempotent
from berth.server.api.pagination import NEWEST, filter_by, page
from berth.server.api.requests import Body, ListQuery, Word, parse_body, parse_query
from berth.server.api.responses import ResponseModel, from_milli
from berth.server.api.schema import operation
from berth.server.api.views import ApiView
from projects.api.services.scaling_schemas import RequestStatusName
from projects.api.workloads.schemas import PhaseName
from projects.engine.scaling import FINAL
from projects.known_names import unknown_project_problem
from projects.models import InferenceEngine, Pod, ScaleRequest, Service
from projects.queries.services import find_service, services
from projects.services.inference import weight_updates
from projects.services.inference.rules import InvalidScaleRequest, service_settings

EngineStateName = Literal[
    "CREATING", "CONNECTING", "HEALTH_CHECKING", "WEIGHT_SYNCING", "READY", "ACTIVE", "DRAINING", "REMOVING",
    "REMOVED", "FAILED",
]  # fmt: skip


class ServicesQuery(ListQuery):
    project: Word | None = None
    ended: bool | None = None


class ActiveScaleRequestResponse(ResponseModel):
    request_id: UUID
    direction: Literal["scale_out", "scale_in"]
    status: RequestStatusName
    num_replicas: int


class ServiceResponse(ResponseModel):
    id: UUID
    name: str
    project: str
    department: str
    phase: PhaseName
    model_name: str
    engine: Literal["sglang", "openai"]
    initial_engines: int
    total_engines: int
    active_engines: int
    autoscaler_enabled: bool
    weight_version: str | None
    weights_updating: bool
    request: ActiveScaleRequestResponse | None
    created_at: datetime
    ended_at: datetime | None


class ServiceDetailResponse(ServiceResponse):
    settings: dict[str, Any]


class InferenceEngineResponse(ResponseModel):
    engine_id: str
    url: str
    status: EngineStateName
    is_healthy: bool
    origin: Literal["initial", "managed", "external"]
    node: str | None
    gpus: float
    weight_version: str | None
    weight_sync: Literal["", "copying", "done", "failed"]
    running_requests: int | None
    in_router: bool
    workload_id: UUID | None
    message: str


class ModelResponse(ResponseModel):
    engines: list[InferenceEngineResponse]


class EnginesResponse(ResponseModel):
    models: dict[str, ModelResponse]
    total_engines: int


class WeightUpdateBody(Body):
    updating: bool


class WeightUpdateResponse(ResponseModel):
    updating: bool
    copying: bool
    weight_version: str | None


class ServiceView(ApiView):
    """Base view for services.

    Invalid values get status 400 instead of 422, as clients that scale services expect.
    """

    def service(self, name_or_id: str) -> Service:
        return find_service(self.actor, name_or_id)

    def handle_exception(self, exc: Exception) -> Response:
        if isinstance(exc, Invalid) and not isinstance(exc, InvalidScaleRequest):
            exc = InvalidScaleRequest(exc.problems)
        response: Response = super().handle_exception(exc)
        return response


class Services(ServiceView):
    @operation("List inference services", query=ServicesQuery, page=ServiceResponse)
    def get(self, request: Request) -> Response:
        query = parse_query(request, ServicesQuery)
        check_names(unknown_project_problem(self.actor, query.project))
        rows = services(self.actor)
        rows = filter_by(rows, workload__project__name=query.project)
        if query.ended is not None:
            rows = rows.filter(ended_at__isnull=not query.ended)
        return Response(page(rows, query, NEWEST, serialize_services))


class ServiceDetail(ServiceView):
    @operation("Get an inference service", response=ServiceDetailResponse)
    def get(self, request: Request, service: str) -> Response:
        row = self.service(service)
        settings = service_settings(row.workload).model_dump(mode="json")
        return Response(
            ServiceDetailResponse(settings=settings, **_service_values(row, _find_active_requests([row])))
        )


class ServiceEngines(ServiceView):
    @operation("List a service's engines by model", response=EnginesResponse)
    def get(self, request: Request, service: str) -> Response:
        row = self.service(service)
        engines = list_engines(row)
        return Response(
            EnginesResponse(
                models={row.model_name: ModelResponse(engines=engines)}, total_engines=len(engines)
            )
        )


class ServiceWeights(ServiceView):
    @operation("Begin or end a weight update", body=WeightUpdateBody, response=WeightUpdateResponse)
    @idempotent
    def post(self, request: Request, service: str) -> Response:
        body, row = parse_body(request, WeightUpdateBody), self.service(service)
        if body.updating:
            row = weight_updates.begin_update(actor=self.actor, service=row)
        else:
            row = weight_updates.end_update(actor=self.actor, service=row)
        return Response(
            WeightUpdateResponse(
                updating=row.updating_since is not None, copying=row.syncing_since is not None,
                weight_version=row.weight_version or None,
            )
        )  # fmt: skip


def serialize_services(rows: Sequence[Service]) -> list[Any]:
    active_requests = _find_active_requests(rows)
    return [ServiceResponse(**_service_values(row, active_requests)) for row in rows]


def list_engines(service: Service) -> list[InferenceEngineResponse]:
    rows = list(service.engines.filter(ended_at__isnull=True).order_by("number"))
    pods = Pod.objects.filter(pk__in=[row.pod_id for row in rows if row.pod_id])
    pods_by_id = {pod.pk: pod for pod in pods.select_related("node", "allocation")}
    return [_serialize_engine(row, pods_by_id) for row in rows]


def _serialize_engine(row: InferenceEngine, pods_by_id: Mapping[UUID, Pod]) -> InferenceEngineResponse:
    pod = pods_by_id.get(row.pod_id) if row.pod_id else None
    return InferenceEngineResponse.from_row(
        row,
        engine_id=row.name,
        status=row.state,
        node=pod.node.name if pod else None,
        gpus=(from_milli(pod.allocation.gpu_milli_total) or 0) if pod else 0,
        weight_version=row.weight_version or None,
        weight_sync=row.sync,
        running_requests=row.running,
        in_router=row.is_routed and row.isolated_at is None,
        message=row.message or row.sync_message or row.router_message,
    )


def _find_active_requests(rows: Sequence[Service]) -> dict[int, ScaleRequest]:
    active = ScaleRequest.objects.filter(service__in=[row.pk for row in rows]).exclude(status__in=FINAL)
    return {request.service_id: request for request in active}


def _service_values(row: Any, active_requests: Mapping[int, ScaleRequest]) -> dict[str, Any]:
    workload, request = row.workload, active_requests.get(row.pk)
    return {
        "id": workload.pk,
        "name": workload.name,
        "project": workload.project.name,
        "department": workload.project.department.name,
        "phase": workload.phase,
        "model_name": row.model_name,
        "engine": (workload.spec.get("service") or {}).get("engine", "sglang"),
        "initial_engines": row.initial_engines,
        "total_engines": row.total,
        "active_engines": row.active,
        "autoscaler_enabled": row.autoscaler.enabled,
        "weight_version": row.weight_version or None,
        "weights_updating": row.updating_since is not None,
        "request": request and ActiveScaleRequestResponse.from_row(request, request_id=request.pk),
        "created_at": row.created_at,
        "ended_at": row.ended_at,
    }  # fmt: skip
