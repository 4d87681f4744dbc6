"""REST endpoints of inference services and their engines."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from rest_framework.request import Request
from rest_framework.response import Response

from berth.core.errors import Invalid
from berth.server.api.idempotency import idempotent
from berth.server.api.pagination import NEWEST, page
from berth.server.api.requests import Body, ListQuery, Word, no_query, parse_body, parse_query
from berth.server.api.responses import Answer, from_milli
from berth.server.api.schema import operation
from berth.server.api.views import ApiView
from projects.api.services.scaling_schemas import StatusWord
from projects.api.workloads.schemas import PhaseWord
from projects.engine.scaling import FINAL
from projects.models import InferenceEngine, Pod, ScaleRequest, Service
from projects.service_selectors import find_service, services
from projects.services.inference import weight_updates
from projects.services.inference.rules import BadScaling, settings_of

EngineWord = Literal[
    "CREATING", "CONNECTING", "HEALTH_CHECKING", "WEIGHT_SYNCING", "READY", "ACTIVE", "DRAINING", "REMOVING",
    "REMOVED", "FAILED",
]  # fmt: skip


class ServicesQuery(ListQuery):
    project: Word | None = None
    ended: bool | None = None


class UnderWayAnswer(Answer):
    request_id: UUID
    direction: Literal["scale_out", "scale_in"]
    status: StatusWord
    num_replicas: int


class ServiceAnswer(Answer):
    id: UUID
    name: str
    project: str
    department: str
    phase: PhaseWord
    model_name: str
    engine: Literal["sglang", "openai"]
    initial_engines: int
    total_engines: int
    active_engines: int
    autoscaler_enabled: bool
    weight_version: str | None
    weights_updating: bool
    request: UnderWayAnswer | None
    created_at: datetime
    ended_at: datetime | None


class OneServiceAnswer(ServiceAnswer):
    settings: dict[str, Any]


class EngineAnswer(Answer):
    engine_id: str
    url: str
    status: EngineWord
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


class ModelAnswer(Answer):
    engines: list[EngineAnswer]


class EnginesAnswer(Answer):
    models: dict[str, ModelAnswer]
    total_engines: int


class WeightsBody(Body):
    updating: bool


class WeightsAnswer(Answer):
    updating: bool
    copying: bool
    weight_version: str | None


class ServiceView(ApiView):
    """Base view of one service. Invalid values answer 400, not 422: clients that scale services expect it."""

    def service(self, name_or_id: str) -> Service:
        return find_service(self.acting, name_or_id)

    def handle_exception(self, exc: Exception) -> Response:
        if isinstance(exc, Invalid) and not isinstance(exc, BadScaling):
            exc = BadScaling(exc.problems)
        answer: Response = super().handle_exception(exc)
        return answer


class Services(ServiceView):
    @operation("List inference services", query=ServicesQuery, page=ServiceAnswer)
    def get(self, request: Request) -> Response:
        query = parse_query(request, ServicesQuery)
        rows = services(self.acting)
        if query.project is not None:
            rows = rows.filter(workload__project__name=query.project)
        if query.ended is not None:
            rows = rows.filter(ended_at__isnull=not query.ended)
        return Response(page(rows, query, NEWEST, listed))


class OneService(ServiceView):
    @operation("Get an inference service", answer=OneServiceAnswer)
    def get(self, request: Request, service: str) -> Response:
        no_query(request)
        row = self.service(service)
        settings = settings_of(row.workload).model_dump(mode="json")
        return Response(OneServiceAnswer(settings=settings, **_values(row, _under_way([row]))))


class EnginesOfService(ServiceView):
    @operation("List the engines of a service by model", answer=EnginesAnswer)
    def get(self, request: Request, service: str) -> Response:
        no_query(request)
        row = self.service(service)
        engines = engines_of(row)
        return Response(
            EnginesAnswer(models={row.model_name: ModelAnswer(engines=engines)}, total_engines=len(engines))
        )


class WeightsOfService(ServiceView):
    @operation("Begin or end a weight update", body=WeightsBody, answer=WeightsAnswer)
    @idempotent
    def post(self, request: Request, service: str) -> Response:
        no_query(request)
        body, row = parse_body(request, WeightsBody), self.service(service)
        if body.updating:
            row = weight_updates.begin(acting=self.acting, service=row)
        else:
            row = weight_updates.end(acting=self.acting, service=row)
        return Response(
            WeightsAnswer(
                updating=row.updating_since is not None, copying=row.syncing_since is not None,
                weight_version=row.weight_version or None,
            )
        )  # fmt: skip


def listed(rows: Sequence[Service]) -> list[Any]:
    under_way = _under_way(rows)
    return [ServiceAnswer(**_values(row, under_way)) for row in rows]


def engines_of(service: Service) -> list[EngineAnswer]:
    rows = list(service.engines.filter(ended_at__isnull=True).order_by("number"))
    pods = Pod.objects.filter(pk__in=[row.pod_id for row in rows if row.pod_id])
    places = {pod.pk: pod for pod in pods.select_related("node", "allocation")}
    return [_engine(row, places) for row in rows]


def _engine(row: InferenceEngine, places: Mapping[UUID, Pod]) -> EngineAnswer:
    pod = places.get(row.pod_id) if row.pod_id else None
    return EngineAnswer(
        engine_id=row.name, url=row.url, status=row.state, is_healthy=row.is_healthy, origin=row.origin,  # type: ignore[arg-type]
        node=pod.node.name if pod else None,
        gpus=(from_milli(pod.allocation.gpu_milli_total) or 0) if pod else 0,
        weight_version=row.weight_version or None, weight_sync=row.sync, running_requests=row.running,  # type: ignore[arg-type]
        in_router=row.is_routed and row.isolated_at is None, workload_id=row.workload_id,
        message=row.message or row.sync_message or row.router_message,
    )  # fmt: skip


def _under_way(rows: Sequence[Service]) -> dict[int, ScaleRequest]:
    active = ScaleRequest.objects.filter(service__in=[row.pk for row in rows]).exclude(status__in=FINAL)
    return {request.service_id: request for request in active}


def _values(row: Any, under_way: Mapping[int, ScaleRequest]) -> dict[str, Any]:
    workload, request = row.workload, under_way.get(row.pk)
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
        "request": request and UnderWayAnswer(
            request_id=request.pk, direction=request.direction, status=request.status,  # type: ignore[arg-type]
            num_replicas=request.num_replicas,
        ),
        "created_at": row.created_at,
        "ended_at": row.ended_at,
    }  # fmt: skip
