"""REST endpoint that submits many workloads in one request."""

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import Field
from rest_framework.request import Request
from rest_framework.response import Response

from berth.core.spec import WorkloadSpec
from berth.server.api.idempotency import idempotent
from berth.server.api.requests import Body, Query, parse_batch, parse_query
from berth.server.api.responses import ProblemResponse, ResponseModel
from berth.server.api.schema import operation
from berth.server.api.views import ApiView
from projects.api.workloads.schemas import WorkloadResponse, serialize_new_row
from projects.services.workloads.batch import (
    DOCUMENTS_MAX,
    BatchItem,
    check_batch,
    item_problems,
    submit_batch,
)

DOCUMENTS_PER_REQUEST = 50  # number of documents in a batch that count as one request against the rate limit


class BatchQuery(Query):
    dry_run: Annotated[bool, Field(description="Check the documents without storing anything.")] = False


class BatchBody(Body):
    """Workload documents. Each document is validated separately, so that the response contains all errors."""

    items: Annotated[list[Any], Field(min_length=1, max_length=DOCUMENTS_MAX)]
    atomic: Annotated[bool, Field(description="Store all workloads or, if one is rejected, none.")] = False


class BatchDocument(BatchBody):
    items: Annotated[list[WorkloadSpec], Field(min_length=1, max_length=DOCUMENTS_MAX)]


class RejectedItemResponse(ResponseModel):
    code: str
    detail: str
    errors: list[ProblemResponse.InvalidValue]


class BatchItemResponse(ResponseModel):
    """Result for one document of the request. Results are in the order of the documents."""

    workload: WorkloadResponse | None = Field(description="The stored workload; null if there is none.")
    warnings: list[str]
    error: RejectedItemResponse | None = Field(description="Reason why the document is rejected.")


class BatchResponse(ResponseModel):
    stored: int
    rejected: int
    items: list[BatchItemResponse]


class SubmitBatch(ApiView):
    @operation(
        "Submit up to 1,000 workloads", query=BatchQuery, body=BatchDocument, response=BatchResponse
    )  # fmt: skip
    @idempotent
    def post(self, request: Request) -> Response:
        """Submit the documents. The idempotency key applies to the whole batch."""
        is_dry_run = parse_query(request, BatchQuery).dry_run
        body = parse_batch(request, BatchBody)
        more = -(-len(body.items) // DOCUMENTS_PER_REQUEST) - 1  # the request itself was already counted
        if more:
            self.spend("write", f"user {request.user.pk}", more)
        submit = check_batch if is_dry_run else submit_batch
        return Response(_serialize(submit(actor=self.actor, documents=body.items, atomic=body.atomic)))


def _serialize(items: Sequence[BatchItem]) -> BatchResponse:
    rows = [_serialize_item(index, item) for index, item in enumerate(items)]
    stored = sum(row.workload is not None for row in rows)
    return BatchResponse(stored=stored, rejected=sum(row.error is not None for row in rows), items=rows)


def _serialize_item(index: int, item: BatchItem) -> BatchItemResponse:
    error = None
    if item.error is not None:
        problems = item_problems(index, item.error)
        error = RejectedItemResponse(
            code=item.error.code,
            detail=item.error.detail,
            errors=[ProblemResponse.InvalidValue(**problem.to_dict()) for problem in problems],
        )
    workload = None if item.submission is None else serialize_new_row(item.submission)
    return BatchItemResponse(workload=workload, warnings=list(item.warnings), error=error)
