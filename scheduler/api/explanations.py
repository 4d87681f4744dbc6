"""REST endpoints that explain a workload."""

from datetime import datetime
from typing import Any
from uuid import UUID

from pydantic import Field
from rest_framework.request import Request
from rest_framework.response import Response

from berth.server.api.requests import no_query
from berth.server.api.responses import Answer
from berth.server.api.schema import operation
from berth.server.api.views import ApiView
from projects import selectors
from projects.api.workloads.schemas import BlockerAnswer, PhaseWord
from scheduler.api import evictions
from scheduler.reports.explanations.workload import explain, with_share_explanations


class WaitedAnswer(Answer):
    reason: str
    since: datetime
    until: datetime | None = Field(description="Null for the present reason.")


class ExplanationAnswer(Answer):
    phase: PhaseWord
    reason: str
    message: str
    queue_position: int | None
    ordering: list[str] = Field(
        description="Sort keys that decided the queue position, most significant first."
    )
    expected_start: datetime | None
    expected_start_reason: str = Field(description="The assumptions of the estimate, or why there is none.")
    blockers: list[BlockerAnswer]
    queue: dict[str, Any] = Field(
        description="Standing of its project and department; in `how`, by resource, the story of each share."
    )
    evictions: list[evictions.EvictionAnswer]
    explained_at: datetime | None
    cycle: int | None
    pending_history: list[WaitedAnswer] = Field(
        description="Reasons for which the workload was pending, oldest first, earlier runs included."
    )


class Explain(ApiView):
    @operation("Explanation of a workload's state", answer=ExplanationAnswer)
    def get(self, request: Request, workload_id: UUID) -> Response:
        no_query(request)
        workload = selectors.find_workload(self.acting, workload_id)
        explanation = explain(self.acting, workload)
        values = {name: getattr(explanation, name) for name in ExplanationAnswer.model_fields}
        values["queue"] = with_share_explanations(self.acting, workload, explanation.queue)
        values["pending_history"] = [
            WaitedAnswer(reason=each.reason, since=each.since, until=each.until)
            for each in explanation.pending_history
        ]
        values["evictions"] = evictions.presenting(self.acting)(explanation.evictions)
        return Response(ExplanationAnswer(**values))
