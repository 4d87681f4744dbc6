"""REST endpoints of scheduling cycles, for platform admins."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any

from pydantic import Field
from rest_framework.request import Request
from rest_framework.response import Response

from berth.core.errors import NotFound
from berth.core.spec.quantities import Moment
from berth.server.api.idempotency import idempotent
from berth.server.api.pagination import NEWEST, page
from berth.server.api.requests import ListQuery, Query, no_query, parse_query
from berth.server.api.responses import Answer
from berth.server.api.schema import operation
from berth.server.api.views import ApiView
from projects.acting import Acting
from scheduler.loop.snapshots import scenario_of
from scheduler.models import Cycle
from scheduler.reports import selectors
from scheduler.reports.replay import replay


class CyclesQuery(ListQuery):
    since: Moment | None = None
    until: Moment | None = None


class CycleQuery(Query):
    scenario: Annotated[bool, Field(description="With what it saw, as a scenario file.")] = False


class CycleAnswer(Answer):
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
    engine: str = Field(description="Which engine decided: its release and a mark of its files.")
    notes: list[Any]


class OneCycleAnswer(CycleAnswer):
    plan: Any
    scenario: Any


class ReplayAnswer(Answer):
    cycle: int
    identical: bool
    recorded_engine_version: str
    engine_version: str
    bundles: int
    waiting: int
    differing: int
    differences: list[str]
    summary: str


class Cycles(ApiView):
    @operation("Cycles, newest first", query=CyclesQuery, page=CycleAnswer)
    def get(self, request: Request) -> Response:
        query = parse_query(request, CyclesQuery)
        rows = selectors.cycles(self.acting).defer("snapshot", "plan")
        if query.since is not None:
            rows = rows.filter(at__gte=query.since)
        if query.until is not None:
            rows = rows.filter(at__lte=query.until)
        return Response(page(rows, query, NEWEST, presented))


class OneCycle(ApiView):
    @operation("One cycle, with its plan", query=CycleQuery, answer=OneCycleAnswer)
    def get(self, request: Request, cycle_id: int) -> Response:
        query = parse_query(request, CycleQuery)
        row = find_cycle(self.acting, cycle_id)
        scenario = scenario_of(row) if query.scenario else None
        return Response(OneCycleAnswer(**values_of(row), plan=row.plan, scenario=scenario))


class Replay(ApiView):
    @operation("Decide a cycle once more, on what it saw, and compare", answer=ReplayAnswer)
    @idempotent
    def post(self, request: Request, cycle_id: int) -> Response:
        no_query(request)
        replayed = replay(find_cycle(self.acting, cycle_id))
        return Response(ReplayAnswer(**{name: getattr(replayed, name) for name in ReplayAnswer.model_fields}))


def find_cycle(acting: Acting, cycle_id: int) -> Cycle:
    row = selectors.cycles(acting).filter(pk=cycle_id).first()
    if row is None:
        raise NotFound("There is no cycle with that id.")
    return row


def values_of(row: Cycle) -> dict[str, Any]:
    return {name: getattr(row, name) for name in CycleAnswer.model_fields}


def presented(rows: Sequence[Cycle]) -> list[Any]:
    return [CycleAnswer(**values_of(row)) for row in rows]
