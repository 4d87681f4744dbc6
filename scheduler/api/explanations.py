"""REST endpoints that explain a workload's state and find a change that would start a pending workload."""

from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from pydantic import Field
from rest_framework.request import Request
from rest_framework.response import Response

from berth.core.spec import WorkloadSpec
from berth.server.api.idempotency import repeatable
from berth.server.api.requests import parse_document
from berth.server.api.responses import ResponseModel
from berth.server.api.schema import operation
from berth.server.api.views import ApiView
from projects import selectors
from projects.api.workloads.schemas import AwaitedEndResponse, BlockerResponse, PhaseName
from projects.services.workloads.prediction import validate
from scheduler.api import evictions
from scheduler.engine.smallest_change.change import ChangeKind
from scheduler.reports.explanations.workload import explain, with_share_explanations
from scheduler.reports.visibility import viewer_for
from scheduler.reports.what_if.smallest_change import find_smallest_change, find_unsaved_workload_change


class PendingPeriodResponse(ResponseModel):
    """Period during which one pending reason applied."""

    reason: str
    since: datetime
    until: datetime | None = Field(description="Null for the current reason.")


class ExplanationResponse(ResponseModel):
    phase: PhaseName
    reason: str
    message: str
    queue_position: int | None
    ordering: list[str] = Field(
        description="Sort keys that decided the queue position, most significant first."
    )
    expected_start: datetime | None
    expected_start_reason: str = Field(
        description="Assumptions of the estimate, or the reason there is none."
    )
    expected_start_after: list[AwaitedEndResponse] = Field(
        description="Workloads whose ends the estimate depends on: at most five, those that end last."
    )
    burst: str = Field(
        description="When a workload with `burst_after` may use its last pool, and the price there; empty if "
        "it may use all of its pools."
    )
    idle: str = Field(
        description="Warning about idle GPUs, or the rules that apply; empty if there is neither."
    )
    blockers: list[BlockerResponse]
    queue: dict[str, Any] = Field(
        description="Queue statuses of the project and its department. `how` explains each resource's share."
    )
    evictions: list[evictions.EvictionResponse]
    explained_at: datetime | None
    cycle: int | None
    pending_history: list[PendingPeriodResponse] = Field(
        description="Reasons the workload was pending, oldest first, including those of earlier runs."
    )


class SingleChangeResponse(ResponseModel):
    """Single change that would let a workload start. Values are GPUs, CPU cores, MiB, seconds or counts."""

    kind: ChangeKind
    subject: str = Field(
        description="The role, queue, node, pool or workload that changes; empty for the workload itself."
    )
    resource: str = Field(
        description="The changed amount, such as gpu, memory_mib, limit.cpu, devices or replicas, or the key "
        "of a label or taint."
    )
    pool: str = Field(description="Pool whose queue, nodes or settings change.")
    before: int | float | str | None
    after: int | float | str | None


class SmallestChangeResponse(ResponseModel):
    """The smallest single change that would start a pending workload now."""

    outcome: Literal["change", "schedulable", "no_change", "undecided", "not_needed"] = Field(
        description="`schedulable`: with the change, a workload that can never start as specified waits for "
        "free resources. `no_change`: no single change starts the workload. `undecided`: none was found "
        "among the changes tried. `not_needed`: the workload is not pending, or the next cycle places it."
    )
    sentence: str
    change: SingleChangeResponse | None
    evicted_workloads: int = Field(description="Other workloads that the start would evict.")
    scaled_down_workloads: int
    moved_workloads: int
    change_without_evictions: SingleChangeResponse | None = Field(
        description="The smallest reduction of the request that starts the workload without evicting, "
        "scaling down or moving others; null if there is none, or if `change` affects no other workload."
    )


class WorkloadExplanation(ApiView):
    @operation("Explain a workload's state", response=ExplanationResponse)
    def get(self, request: Request, workload_id: UUID) -> Response:
        workload = selectors.find_workload(self.actor, workload_id)
        explanation = explain(self.actor, workload)
        return Response(
            ExplanationResponse.from_row(
                explanation,
                queue=with_share_explanations(self.actor, workload, explanation.queue),
                evictions=evictions.serializer_for(self.actor)(explanation.evictions),
            )
        )


class WorkloadSmallestChange(ApiView):
    @operation(
        "Find the smallest change that would start a pending workload now", response=SmallestChangeResponse
    )
    def get(self, request: Request, workload_id: UUID) -> Response:
        workload = selectors.find_workload(self.actor, workload_id)
        return Response(
            SmallestChangeResponse.from_row(find_smallest_change(workload, viewer_for(self.actor)))
        )


class DocumentSmallestChange(ApiView):
    @operation(
        "Find the smallest change with which a submitted document would start now",
        body=WorkloadSpec, response=SmallestChangeResponse,
    )  # fmt: skip
    @repeatable
    def post(self, request: Request) -> Response:
        """Search for the smallest change that would let an unsaved workload start. Nothing is stored."""
        draft = validate(actor=self.actor, document=parse_document(request))
        answer = find_unsaved_workload_change(draft.workload, draft.spec, viewer_for(self.actor))
        return Response(SmallestChangeResponse.from_row(answer))
