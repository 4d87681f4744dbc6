"""REST endpoint of the scheduler's health, with invariants checked on request."""

from datetime import datetime

from django.utils import timezone
from pydantic import Field
from rest_framework.request import Request
from rest_framework.response import Response

from berth.server.api.requests import no_query
from berth.server.api.responses import Answer
from berth.server.api.schema import operation
from berth.server.api.views import ApiView
from scheduler.reports.health import health


class Leader(Answer):
    holder: str
    epoch: int
    renewed_at: datetime
    expires_at: datetime
    alive: bool


class LastCycle(Answer):
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


class Law(Answer):
    name: str
    ok: bool
    detail: str


class Wake(Answer):
    last_renewal_seconds: float


class HealthAnswer(Answer):
    leader: Leader | None
    last_cycle: LastCycle | None
    invariants: list[Law]
    pending: int
    wake: Wake | None


class Health(ApiView):
    @operation("Leader, last cycle and invariants of the scheduler", answer=HealthAnswer)
    def get(self, request: Request) -> Response:
        no_query(request)
        self.require("administer")
        return Response(HealthAnswer(**health(timezone.now())))
