"""REST endpoints for scheduling cycles, for platform admins."""

from datetime import datetime
from typing import Annotated, Any

from pydantic import Field
from rest_framework.request import Request
from rest_framework.response import Response

from berth.core.not_found import ObjectKind, not_found_error
from berth.core.spec.values.quantities import Moment
from berth.server.api.idempotency import idempotent
from berth.server.api.pagination import NEWEST, filter_by, map_rows, page
from berth.server.api.requests import ListQuery, Query, parse_query
from berth.server.api.responses import ResponseModel
from berth.server.api.schema import operation
from berth.server.api.views import ApiView
from projects.actor import Actor
from scheduler.loop.snapshots import cycle_scenario
from scheduler.models import Cycle
from scheduler.reports import selectors
from scheduler.reports.replay import replay


class CyclesQuery(ListQuery):
    since: Moment | None = None
    until: Moment | None = None


class CycleQuery(Query):
    scenario: Annotated[bool, Field(description="Include the cycle's input as a scenario file.")] = False


class CycleResponse(ResponseModel):
    id: int
    at: datetime
    epoch: int
    trigger: str
    observe_ms: float
    decide_ms: float
    commit_ms: float
    nodes: int
    workloads: int
    pending: int
    bundles: int
    applied: int
    stale: int
    evictions: int
    trials: int
    engine: str = Field(description="Version of the decision engine: release and file digest.")
    notes: list[Any]


class CycleDetailResponse(CycleResponse):
    plan: Any
    scenario: Any


class ReplayResponse(ResponseModel):
    cycle: int
    identical: bool
    recorded_engine_version: str
    engine_version: str
    bundles: int
    pending: int
    differing: int
    differences: list[str]
    summary: str


class Cycles(ApiView):
    @operation("List cycles, newest first", query=CyclesQuery, page=CycleResponse)
    def get(self, request: Request) -> Response:
        query = parse_query(request, CyclesQuery)
        rows = selectors.cycles(self.actor).defer("snapshot", "plan")
        rows = filter_by(rows, at__gte=query.since, at__lte=query.until)
        return Response(page(rows, query, NEWEST, map_rows(CycleResponse.from_row)))


class CycleDetail(ApiView):
    @operation("Get a cycle with its plan", query=CycleQuery, response=CycleDetailResponse)
    def get(self, request: Request, cycle_id: int) -> Response:
        query = parse_query(request, CycleQuery)
        row = find_cycle(self.actor, cycle_id)
        scenario = cycle_scenario(row) if query.scenario else None
        return Response(CycleDetailResponse.from_row(row, scenario=scenario))


class Replay(ApiView):
    @operation("Replay a cycle on its recorded input and compare the plans", response=ReplayResponse)
    @idempotent
    def post(self, request: Request, cycle_id: int) -> Response:
        replayed = replay(find_cycle(self.actor, cycle_id))
        return Response(ReplayResponse.from_row(replayed))


def find_cycle(actor: Actor, cycle_id: int) -> Cycle:
    row = selectors.cycles(actor).filter(pk=cycle_id).first()
    if row is None:
        raise not_found_error(ObjectKind.CYCLE, object_id=cycle_id)
    return row
