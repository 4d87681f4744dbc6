"""REST endpoints for workloads."""

from dataclasses import asdict
from typing import Annotated
from uuid import UUID

from pydantic import Field
from rest_framework.request import Request
from rest_framework.response import Response

from berth.core.errors import Invalid
from berth.core.not_found import ObjectKind, not_found_error
from berth.core.spec import WorkloadSpec
from berth.db.writes.stored_responses import ResponseRow
from berth.server.api.idempotency import idempotent
from berth.server.api.pagination import page
from berth.server.api.requests import (
    Body,
    NoBody,
    Query,
    etag,
    optional_version,
    parse_body,
    parse_document,
    parse_query,
)
from berth.server.api.responses import ProblemResponse, ResponseModel, created_response, no_content
from berth.server.api.schema import operation
from berth.server.api.views import ApiView
from projects import selectors
from projects.api.workloads.filters import WorkloadsQuery, filter_workloads, sort_order
from projects.api.workloads.schemas import (
    DryRunResponse,
    EditResponse,
    SubmissionResponse,
    WorkloadDetailResponse,
    WorkloadPatch,
    WorkloadResponse,
    annotate_pod_counts,
    serialize_edit,
    serialize_list,
    serialize_submission,
    serialize_workload,
)
from projects.models import Workload
from projects.services import workloads
from projects.services.workloads.prediction import dry_run, predict_edit
from projects.services.workloads.submission import Submission


class SubmitQuery(Query):
    dry_run: Annotated[bool, Field(description="Predict the outcome without storing anything.")] = False


class EditQuery(Query):
    dry_run: Annotated[bool, Field(description="Preview the changes without storing them.")] = False


class Workloads(ApiView):
    @operation("List workloads", query=WorkloadsQuery, page=WorkloadResponse)
    def get(self, request: Request) -> Response:
        query = parse_query(request, WorkloadsQuery)
        rows = annotate_pod_counts(filter_workloads(self.actor, query)).defer("spec")
        return Response(page(rows, query, sort_order(query), serialize_list))

    @operation(
        "Submit a workload, or predict the outcome of submitting it",
        query=SubmitQuery, body=WorkloadSpec, response=SubmissionResponse, status=201,
        alternative=(200, DryRunResponse),
    )  # fmt: skip
    @idempotent
    def post(self, request: Request) -> Response:
        if parse_query(request, SubmitQuery).dry_run:
            return Response(self._predict(request))
        document = parse_document(request)
        if self.used_key is None:
            return _created_response(workloads.submit_with_warnings(actor=self.actor, document=document))
        used, responses = self.used_key, list[Response]()

        def respond(submission: Submission) -> ResponseRow:
            responses.append(_created_response(submission))
            return used.row(responses[0])

        workloads.submit_with_warnings(actor=self.actor, document=document, respond=respond)
        return responses[0]

    def stores_response(self, request: Request) -> bool:
        return not parse_query(request, SubmitQuery).dry_run

    def _predict(self, request: Request) -> DryRunResponse:
        try:
            return DryRunResponse(**asdict(dry_run(actor=self.actor, document=parse_document(request))))
        except Invalid as error:
            errors = [ProblemResponse.InvalidValue(**problem.to_dict()) for problem in error.problems]
            return DryRunResponse(outcome="invalid", workload=None, errors=errors)


def _created_response(submission: Submission) -> Response:
    return created_response(serialize_submission(submission), f"/api/v1/workloads/{submission.workload.pk}")


class WorkloadDetail(ApiView):
    @operation("Get a workload", response=WorkloadDetailResponse)
    def get(self, request: Request, workload_id: UUID) -> Response:
        response = serialize_workload(selectors.find_workload(self.actor, workload_id))
        return Response(response, headers={"ETag": etag(response.version)})

    @operation(
        "Edit a pending or suspended workload, or preview the edit", query=EditQuery, body=WorkloadPatch,
        response=EditResponse, headers=("If-Match",),
    )  # fmt: skip
    def patch(self, request: Request, workload_id: UUID) -> Response:
        query, workload = parse_query(request, EditQuery), selectors.find_workload(self.actor, workload_id)
        edit = workloads.edit(
            actor=self.actor,
            workload=workload,
            patch=parse_document(request),
            version=optional_version(request, workload.version),
            dry_run=query.dry_run,
        )
        prediction = predict_edit(actor=self.actor, edit=edit) if query.dry_run else None
        return Response(serialize_edit(edit, prediction), headers={"ETag": etag(edit.workload.version)})

    @operation("Delete a workload that has ended", status=204)
    def delete(self, request: Request, workload_id: UUID) -> Response:
        workloads.delete(actor=self.actor, workload=selectors.find_workload(self.actor, workload_id))
        return no_content()


class Resubmit(ApiView):
    @operation("Submit an ended workload again", response=SubmissionResponse, status=201)
    @idempotent
    def post(self, request: Request, workload_id: UUID) -> Response:
        """Submit the workload's document as a new workload with the next free name, such as `train-2`."""
        parse_body(request, NoBody)
        ended = selectors.find_workload(self.actor, workload_id)
        return _created_response(workloads.resubmit(actor=self.actor, workload=ended))


class WorkloadAction(ApiView):
    """Base view for workload actions, which accept neither query parameters nor a body."""

    def target(self, request: Request, workload_id: UUID) -> Workload:
        parse_body(request, NoBody)
        return selectors.find_workload(self.actor, workload_id)


class Cancel(WorkloadAction):
    @operation("Cancel a workload", response=WorkloadDetailResponse)
    @idempotent
    def post(self, request: Request, workload_id: UUID) -> Response:
        target = self.target(request, workload_id)
        return Response(serialize_workload(workloads.cancel(actor=self.actor, workload=target)))


class CancelManyBody(Body):
    ids: Annotated[list[Annotated[UUID, Field(strict=False)]], Field(min_length=1, max_length=200)]


class RejectedCancelResponse(ResponseModel):
    id: UUID
    reason: str


class CancelManyResponse(ResponseModel):
    cancelled: list[UUID]
    rejected: list[RejectedCancelResponse]


class CancelMany(ApiView):
    @operation("Cancel several workloads", body=CancelManyBody, response=CancelManyResponse)
    @idempotent
    def post(self, request: Request) -> Response:
        """Cancel the workloads. Return the reason for each workload that cannot be cancelled."""
        ids = list(dict.fromkeys(parse_body(request, CancelManyBody).ids))
        rows = {row.pk: row for row in selectors.workloads(self.actor).filter(pk__in=ids)}
        visible = [rows[pk] for pk in ids if pk in rows]
        outcome = workloads.bulk_change(actor=self.actor, workloads=visible, change=workloads.cancel)
        rejected = [RejectedCancelResponse(id=row.pk, reason=reason) for row, reason in outcome.rejected]
        for pk in ids:
            if pk not in rows:
                error = not_found_error(ObjectKind.WORKLOAD, object_id=pk)
                rejected.append(RejectedCancelResponse(id=pk, reason=error.detail))
        return Response(CancelManyResponse(cancelled=[row.pk for row in outcome.changed], rejected=rejected))


class Suspend(WorkloadAction):
    @operation("Suspend a workload", response=WorkloadDetailResponse)
    @idempotent
    def post(self, request: Request, workload_id: UUID) -> Response:
        target = self.target(request, workload_id)
        return Response(serialize_workload(workloads.suspend(actor=self.actor, workload=target)))


class Resume(WorkloadAction):
    @operation("Resume a suspended workload", response=WorkloadDetailResponse)
    @idempotent
    def post(self, request: Request, workload_id: UUID) -> Response:
        target = self.target(request, workload_id)
        return Response(serialize_workload(workloads.resume(actor=self.actor, workload=target)))
