"""REST models for scale requests.

Times are Unix timestamps in seconds, as programs that scale services expect.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import Field

from berth.server.api.requests import Body, ListQuery, Word
from berth.server.api.responses import ResponseModel
from projects.models import InferenceEngine, ScaleRequest

RequestStatusName = Literal[
    "PENDING", "CREATING", "CONNECTING", "HEALTH_CHECKING", "WEIGHT_SYNCING", "READY", "ROLLING_BACK",
    "DRAINING", "REMOVING", "ACTIVE", "PARTIAL", "COMPLETED", "NOOP", "FAILED", "CANCELLED",
]  # fmt: skip
Urls = Annotated[tuple[str, ...], Field(max_length=256, strict=False)]


class ScaleBody(Body):
    model_name: Annotated[str, Field(max_length=200)] = "default"
    num_replicas: int = Field(0, description="Total number of engines, including the initial ones.")
    engine_urls: Urls = ()
    timeout_secs: float | None = None


class ScaleOutBody(ScaleBody):
    mode: Literal["managed", "ray_native", "external"] | None = None


class ScaleInBody(ScaleBody):
    force: bool = False
    dry_run: bool = False


class CancelScaleOutsBody(Body):
    dry_run: bool = False
    status_filter: RequestStatusName | None = None


class ScaleRequestsQuery(ListQuery):
    status: RequestStatusName | None = None
    model_name: Word | None = None


class ScaleAcceptedResponse(ResponseModel):
    """Response to a scale request or a dry run."""

    request_id: UUID | None = Field(description="Null for a dry run.")
    status: RequestStatusName | Literal["DRY_RUN"]
    message: str
    engine_ids: list[str] = Field(description="Engines that a scale-in removes.")
    engine_urls: list[str]


class ScaleStepResponse(ResponseModel):
    status: RequestStatusName
    at: float
    message: str


class PendingEngineResponse(ResponseModel):
    """Engine that is still being created, with the state of its workload."""

    engine_id: str
    workload_id: UUID
    workload: str
    phase: str
    reason: str
    message: str


class FailedEngineResponse(ResponseModel):
    engine_id: str
    url: str
    failure: str
    message: str


class ScaleRequestResponse(ResponseModel):
    request_id: UUID
    direction: Literal["scale_out", "scale_in"]
    mode: Literal["managed", "external"]
    status: RequestStatusName
    model_name: str
    num_replicas: int
    engine_urls: list[str]
    engine_ids: list[str]
    failed_engines: list[FailedEngineResponse]
    created_at: float
    updated_at: float
    deadline: float
    error_message: str | None
    failure: str | None
    weight_version: str | None
    force: bool
    requested_by: str
    reason: str
    steps: list[ScaleStepResponse]
    pending: list[PendingEngineResponse]


class CancelledScaleOutResponse(ResponseModel):
    request_id: UUID
    status: RequestStatusName


class ScaleOutCancellationResponse(ResponseModel):
    dry_run: bool
    status_filter: RequestStatusName | None
    cancelled: list[CancelledScaleOutResponse]
    count: int
    message: str


def to_timestamp(at: datetime) -> float:
    return at.timestamp()


def serialize_scale_requests(rows: Sequence[ScaleRequest]) -> list[Any]:
    return [serialize_scale_request(row) for row in rows]


def serialize_scale_request(row: ScaleRequest) -> ScaleRequestResponse:
    engines = sorted(
        row.added.all() if row.direction == "scale_out" else row.removed.all(), key=lambda one: one.number
    )
    return ScaleRequestResponse.from_row(
        row,
        request_id=row.pk,
        engine_ids=[engine.name for engine in engines],
        created_at=to_timestamp(row.created_at),
        updated_at=to_timestamp(row.updated_at),
        deadline=to_timestamp(row.deadline),
        error_message=row.error_message or None,
        failure=row.failure or None,
        weight_version=row.weight_version or None,
        steps=[ScaleStepResponse.from_row(step, at=to_timestamp(step.at)) for step in row.steps.all()],
        pending=_serialize_pending_engines(engines),
    )


def _serialize_pending_engines(engines: Iterable[InferenceEngine]) -> list[PendingEngineResponse]:
    pending = [e for e in engines if e.state == "CREATING" and e.workload is not None]
    return [
        PendingEngineResponse.from_row(
            e.workload, engine_id=e.name, workload_id=e.workload.pk, workload=e.workload.name
        )
        for e in pending
        if e.workload is not None
    ]
