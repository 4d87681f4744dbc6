"""REST endpoints of workloads."""

from dataclasses import asdict
from typing import Annotated
from uuid import UUID

from pydantic import Field
from rest_framework.request import Request
from rest_framework.response import Response

from berth.core.errors import Invalid
from berth.core.spec import WorkloadSpec
from berth.server.api.idempotency import idempotent
from berth.server.api.pagination import page
from berth.server.api.requests import Body, NoBody, Query, no_query, parse_body, parse_document, parse_query
from berth.server.api.responses import Answer, ProblemAnswer, created, no_content
from berth.server.api.schema import operation
from berth.server.api.views import ApiView
from projects import selectors
from projects.api.workloads.filters import WorkloadsQuery, filtered, order_of
from projects.api.workloads.schemas import (
    OneWorkloadAnswer,
    PredictionAnswer,
    SubmittedAnswer,
    WorkloadAnswer,
    answer,
    listed,
    submission,
    with_counts,
)
from projects.models import Workload
from projects.services import workloads
from projects.services.workloads.prediction import dry_run

NOT_THERE = "There is no workload with that id."


class SubmitQuery(Query):
    dry_run: Annotated[bool, Field(description="Predict the outcome; store nothing.")] = False


class Workloads(ApiView):
    @operation("List workloads", query=WorkloadsQuery, page=WorkloadAnswer)
    def get(self, request: Request) -> Response:
        query = parse_query(request, WorkloadsQuery)
        rows = with_counts(filtered(selectors.workloads(self.acting), query)).defer("spec")
        return Response(page(rows, query, order_of(query), listed))

    @operation(
        "Submit a workload, or predict what submitting it would do",
        query=SubmitQuery, body=WorkloadSpec, answer=SubmittedAnswer, status=201,
        alternative=(200, PredictionAnswer),
    )  # fmt: skip
    @idempotent
    def post(self, request: Request) -> Response:
        if parse_query(request, SubmitQuery).dry_run:
            return Response(self._predict(request))
        submitted = workloads.submit_with_warnings(acting=self.acting, document=parse_document(request))
        return created(submission(submitted), f"/api/v1/workloads/{submitted.workload.pk}")

    def _predict(self, request: Request) -> PredictionAnswer:
        try:
            return PredictionAnswer(**asdict(dry_run(acting=self.acting, document=parse_document(request))))
        except Invalid as error:
            faults = [ProblemAnswer.Fault(**problem.to_dict()) for problem in error.problems]
            return PredictionAnswer(outcome="invalid", workload=None, errors=faults)


class OneWorkload(ApiView):
    @operation("Get a workload", answer=OneWorkloadAnswer)
    def get(self, request: Request, workload_id: UUID) -> Response:
        no_query(request)
        return Response(answer(selectors.find_workload(self.acting, workload_id)))

    @operation("Delete a workload that has ended", status=204)
    def delete(self, request: Request, workload_id: UUID) -> Response:
        no_query(request)
        workloads.delete(acting=self.acting, workload=selectors.find_workload(self.acting, workload_id))
        return no_content()


class Act(ApiView):
    """Base class of actions on a workload, which have neither query nor body."""

    def target(self, request: Request, workload_id: UUID) -> Workload:
        no_query(request)
        parse_body(request, NoBody)
        return selectors.find_workload(self.acting, workload_id)


class Cancel(Act):
    @operation("Cancel a workload", answer=OneWorkloadAnswer)
    @idempotent
    def post(self, request: Request, workload_id: UUID) -> Response:
        target = self.target(request, workload_id)
        return Response(answer(workloads.cancel(acting=self.acting, workload=target)))


class ManyBody(Body):
    ids: Annotated[list[Annotated[UUID, Field(strict=False)]], Field(min_length=1, max_length=200)]


class RefusedAnswer(Answer):
    id: UUID
    reason: str


class ManyAnswer(Answer):
    cancelled: list[UUID]
    refused: list[RefusedAnswer]


class CancelMany(ApiView):
    @operation("Cancel several workloads", body=ManyBody, answer=ManyAnswer)
    @idempotent
    def post(self, request: Request) -> Response:
        """Cancel the workloads that can be cancelled; report the others with a reason."""
        no_query(request)
        ids = list(dict.fromkeys(parse_body(request, ManyBody).ids))
        rows = {row.pk: row for row in selectors.workloads(self.acting).filter(pk__in=ids)}
        mine = [rows[pk] for pk in ids if pk in rows]
        outcome = workloads.bulk_cancel(acting=self.acting, workloads=mine)
        refused = [RefusedAnswer(id=row.pk, reason=why) for row, why in outcome.refused]
        refused += [RefusedAnswer(id=pk, reason=NOT_THERE) for pk in ids if pk not in rows]
        return Response(ManyAnswer(cancelled=[row.pk for row in outcome.cancelled], refused=refused))


class Suspend(Act):
    @operation("Suspend a workload", answer=OneWorkloadAnswer)
    @idempotent
    def post(self, request: Request, workload_id: UUID) -> Response:
        target = self.target(request, workload_id)
        return Response(answer(workloads.suspend(acting=self.acting, workload=target)))


class Resume(Act):
    @operation("Resume a suspended workload", answer=OneWorkloadAnswer)
    @idempotent
    def post(self, request: Request, workload_id: UUID) -> Response:
        target = self.target(request, workload_id)
        return Response(answer(workloads.resume(acting=self.acting, workload=target)))
