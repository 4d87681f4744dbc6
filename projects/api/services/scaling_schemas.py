"""REST models of scale requests.

Times are seconds since 1970, as programs that
scale services expect them."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import Field

from berth.server.api.requests import Body, ListQuery, Word
from berth.server.api.responses import Answer
from projects.models import InferenceEngine, ScaleRequest, ScaleStep

StatusWord = Literal[
    "PENDING", "CREATING", "CONNECTING", "HEALTH_CHECKING", "WEIGHT_SYNCING", "READY", "ROLLING_BACK",
    "DRAINING", "REMOVING", "ACTIVE", "PARTIAL", "COMPLETED", "NOOP", "FAILED", "CANCELLED",
]  # fmt: skip
Urls = Annotated[tuple[str, ...], Field(max_length=256, strict=False)]


class ScaleBody(Body):
    model_name: Annotated[str, Field(max_length=200)] = "default"
    num_replicas: int = Field(0, description="So many engines in all, the initial ones counted.")
    engine_urls: Urls = ()
    timeout_secs: float | None = None


class ScaleOutBody(ScaleBody):
    mode: Literal["managed", "ray_native", "external"] | None = None


class ScaleInBody(ScaleBody):
    force: bool = False
    dry_run: bool = False


class CancelScaleOutsBody(Body):
    dry_run: bool = False
    status_filter: StatusWord | None = None


class ScaleRequestsQuery(ListQuery):
    status: StatusWord | None = None
    model_name: Word | None = None


class ScaleAcceptedAnswer(Answer):
    request_id: UUID | None = Field(description="Null for a dry run.")
    status: StatusWord | Literal["DRY_RUN"]
    message: str
    engine_ids: list[str] = Field(description="Of a scale-in: those that go.")
    engine_urls: list[str]


class ScaleStepAnswer(Answer):
    status: StatusWord
    at: float
    message: str


class WaitingEngineAnswer(Answer):
    """Pending reason of an engine that is not scheduled yet."""

    engine_id: str
    workload_id: UUID
    workload: str
    phase: str
    reason: str
    message: str


class FailedEngineAnswer(Answer):
    engine_id: str
    url: str
    failure: str
    message: str


class ScaleRequestAnswer(Answer):
    request_id: UUID
    direction: Literal["scale_out", "scale_in"]
    mode: Literal["managed", "external"]
    status: StatusWord
    model_name: str
    num_replicas: int
    engine_urls: list[str]
    engine_ids: list[str]
    failed_engines: list[FailedEngineAnswer]
    created_at: float
    updated_at: float
    deadline: float
    error_message: str | None
    failure: str | None
    weight_version: str | None
    force: bool
    requested_by: str
    reason: str
    steps: list[ScaleStepAnswer]
    waiting: list[WaitingEngineAnswer]


class CancelledScaleOutAnswer(Answer):
    request_id: UUID
    status: StatusWord


class CancelledScaleOutsAnswer(Answer):
    dry_run: bool
    status_filter: StatusWord | None
    cancelled: list[CancelledScaleOutAnswer]
    count: int
    message: str


def seconds(at: datetime) -> float:
    return at.timestamp()


def presented(rows: Sequence[ScaleRequest]) -> list[Any]:
    return [answer(row) for row in rows]


def answer(row: ScaleRequest) -> ScaleRequestAnswer:
    engines = sorted(
        row.added.all() if row.direction == "scale_out" else row.removed.all(), key=lambda one: one.number
    )
    return ScaleRequestAnswer(
        request_id=row.pk, direction=row.direction, mode=row.mode, status=row.status,  # type: ignore[arg-type]
        model_name=row.model_name, num_replicas=row.num_replicas, engine_urls=row.engine_urls,
        engine_ids=[engine.name for engine in engines],
        failed_engines=[FailedEngineAnswer(**one) for one in row.failed_engines],
        created_at=seconds(row.created_at), updated_at=seconds(row.updated_at),
        deadline=seconds(row.deadline), error_message=row.error_message or None,
        failure=row.failure or None, weight_version=row.weight_version or None, force=row.force,
        requested_by=row.requested_by, reason=row.reason,
        steps=[_step(step) for step in row.steps.all()],
        waiting=_waiting(engines),
    )  # fmt: skip


def _step(step: ScaleStep) -> ScaleStepAnswer:
    status: Any = step.status
    return ScaleStepAnswer(status=status, at=seconds(step.at), message=step.message)


def _waiting(engines: Iterable[InferenceEngine]) -> list[WaitingEngineAnswer]:
    waiting = [e for e in engines if e.state == "CREATING" and e.workload is not None]
    return [
        WaitingEngineAnswer(
            engine_id=e.name, workload_id=e.workload.pk, workload=e.workload.name, phase=e.workload.phase,
            reason=e.workload.reason, message=e.workload.message,
        )
        for e in waiting
        if e.workload is not None
    ]  # fmt: skip
