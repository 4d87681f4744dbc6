"""REST endpoint for the scheduler's health. Each request checks the invariants."""

from datetime import datetime

from django.utils import timezone
from pydantic import Field
from rest_framework.request import Request
from rest_framework.response import Response

from berth.server.api.responses import ResponseModel
from berth.server.api.schema import operation
from berth.server.api.views import ApiView
from scheduler.reports.health import health_document


class LeaderResponse(ResponseModel):
    holder: str
    epoch: int
    renewed_at: datetime
    expires_at: datetime
    alive: bool


class LastCycleResponse(ResponseModel):
    id: int
    at: datetime
    trigger: str
    observe_ms: float
    decide_ms: float
    commit_ms: float
    applied: int
    stale: int
    evictions: int
    notes: list[str] = Field(description="Inconsistent rows that the cycle skipped.")


class InvariantResponse(ResponseModel):
    name: str
    ok: bool
    detail: str


class WakeResponse(ResponseModel):
    last_renewal_seconds: float


class HealthResponse(ResponseModel):
    """State of the scheduler. The invariants are checked during the request."""

    leader: LeaderResponse | None
    last_cycle: LastCycleResponse | None
    invariants: list[InvariantResponse]
    pending: int
    wake: WakeResponse | None


class Health(ApiView):
    @operation("Get the leader, last cycle and invariants of the scheduler", response=HealthResponse)
    def get(self, request: Request) -> Response:
        self.require("administer")
        return Response(HealthResponse(**health_document(timezone.now())))
