"""REST endpoints that explain a workload and predict a submission."""

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import Field
from rest_framework.request import Request
from rest_framework.response import Response

from berth.core.errors import Invalid
from berth.core.spec import WorkloadSpec
from berth.server.api.answers import Answer, ProblemAnswer
from berth.server.api.bodies import document_of
from berth.server.api.door import Door
from berth.server.api.idempotency import once
from berth.server.api.queries import Query, no_query, query_of
from berth.server.api.schema import described
from projects import selectors
from projects.api.workloads import views
from projects.api.workloads.schemas import PhaseWord, SubmittedAnswer
from scheduler.api import evictions
from scheduler.reports.explanations.workload import explain, how_shares_come_about
from scheduler.reports.what_if.dry_run import dry_run


class Blocker(Answer):
    reason: str
    message: str
    numbers: dict[str, Any]


class WaitedAnswer(Answer):
    reason: str
    since: datetime
    until: datetime | None = Field(description="Null: it waits for this now.")


class ExplanationAnswer(Answer):
    phase: PhaseWord
    reason: str
    message: str
    position: int | None
    key: list[str] = Field(description="What its place in line was decided by, first to last.")
    expected_start: datetime | None
    expected_because: str = Field(description="What the estimate rests on, or why there is none.")
    blockers: list[Blocker]
    queue: dict[str, Any] = Field(
        description="Standing of its project and department; in `how`, by resource, the story of each share."
    )
    evictions: list[evictions.EvictionAnswer]
    explained_at: datetime | None
    cycle: int | None
    waited: list[WaitedAnswer] = Field(
        description="For what it waited last, one reason after another, in earlier waits too."
    )


class Foreseen(Answer):
    """What the next cycle would do if nothing else changed."""

    outcome: Literal["would_start", "would_wait", "would_evict", "unschedulable", "invalid"]
    workload: dict[str, Any] | None
    decisions: list[dict[str, Any]] = []
    evictions: list[dict[str, Any]] = []
    blockers: list[Blocker] = []
    position: int | None = None
    expected_start: datetime | None = None
    expected_because: str = ""
    warnings: Annotated[list[str], Field(description="As in the answer of a submission.")] = []
    errors: list[ProblemAnswer.Fault] = Field(
        [], description="What is wrong with the document, when invalid."
    )


class SubmitQuery(Query):
    dry_run: Annotated[bool, Field(description="Say what would happen; store nothing.")] = False


class Workloads(views.Workloads):
    """The list and the submission of the tenants' floor, and the question what a submission would do."""

    @described(
        "Submit a workload, or ask what would happen",
        query=SubmitQuery, body=WorkloadSpec, answer=SubmittedAnswer, status=201, instead=(200, Foreseen),
    )  # fmt: skip
    @once
    def post(self, request: Request) -> Response:
        if query_of(request, SubmitQuery).dry_run:
            return Response(self._foreseen(request))
        return self.submitted(request)

    def _foreseen(self, request: Request) -> Foreseen:
        try:
            return Foreseen(**dry_run(acting=self.acting, document=document_of(request)).as_dict())
        except Invalid as error:
            faults = [ProblemAnswer.Fault(**problem.to_dict()) for problem in error.problems]
            return Foreseen(outcome="invalid", workload=None, errors=faults)


class Explain(Door):
    @described("Why it is where it is", answer=ExplanationAnswer)
    def get(self, request: Request, workload_id: UUID) -> Response:
        no_query(request)
        workload = selectors.find_workload(self.acting, workload_id)
        found = explain(self.acting, workload)
        told = {name: getattr(found, name) for name in ExplanationAnswer.model_fields}
        told["queue"] = how_shares_come_about(self.acting, workload, found.queue)
        told["waited"] = [
            WaitedAnswer(reason=each.reason, since=each.since, until=each.until) for each in found.waited
        ]
        told["evictions"] = evictions.presenting(self.acting)(found.evictions)
        return Response(ExplanationAnswer(**told))
