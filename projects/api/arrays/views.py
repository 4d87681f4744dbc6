"""REST endpoints for arrays."""

from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from typing import Annotated, Literal, Protocol
from uuid import UUID

from django.db.models import QuerySet
from pydantic import AfterValidator, Field
from rest_framework.request import Request
from rest_framework.response import Response

from berth.core.errors import Invalid
from berth.core.problems import Problem
from berth.core.spec import WorkloadSpec
from berth.core.spec.sections.arrays import TASKS_MAX, Indexes, expand, validate_index_count
from berth.db.queries.known_names import check_names
from berth.server.api.idempotency import idempotent
from berth.server.api.pagination import Order, filter_by, page
from berth.server.api.requests import Body, ListQuery, Query, Word, parse_body, parse_document, parse_query
from berth.server.api.responses import ProblemResponse, created_response, no_content
from berth.server.api.schema import operation
from berth.server.api.views import ApiView
from projects import selectors
from projects.actor import Actor
from projects.api.arrays.schemas import (
    ArrayChangeResponse,
    ArrayDetailResponse,
    ArrayDryRunResponse,
    ArrayResponse,
    ArrayStateName,
    ArraySubmissionResponse,
    serialize_array,
    serialize_arrays,
    serialize_submission,
)
from projects.api.workloads.schemas import DryRunResponse
from projects.known_names import unknown_project_problem, unknown_user_problem
from projects.models import WorkloadArray
from projects.queries.reported_metrics import Goal
from projects.services import arrays

TASKS_PER_REQUEST = 50  # number of stored tasks that count as one request against the rate limit


class ArraysQuery(ListQuery):
    project: Word | None = None
    state: ArrayStateName | None = None
    submitted_by: Word | None = None
    search: Annotated[Word, Field(description="Part of the name.")] | None = None
    sort: Literal["submitted_at", "-submitted_at", "name", "-name"] = "-submitted_at"
    costs: Annotated[bool, Field(description="Include the cost of each array's tasks.")] = False


class SubmitArrayQuery(Query):
    dry_run: Annotated[bool, Field(description="Check the document without storing anything.")] = False


class ChangeQuery(Query):
    dry_run: Annotated[bool, Field(description="Count the tasks without changing them.")] = False


class ChangeBody(Body):
    """Tasks to change, selected by index."""

    indexes: Annotated[
        Annotated[Indexes, AfterValidator(validate_index_count)] | None,
        Field(description="Indexes and ranges such as 7 or 0-99:10; by default all."),
    ] = None


class WorstTasks(Body):
    """Live tasks with the worst latest values of a metric. Values that are not finite rank as the worst."""

    metric: Annotated[Word, Field(description="Name of the metric, for example loss.")]
    goal: Goal = "min"
    count: Annotated[int, Field(ge=1, le=TASKS_MAX, description="Number of tasks.")]


class CancelBody(ChangeBody):
    """Tasks to cancel, selected by index or by the worst values of a metric."""

    worst: WorstTasks | None = None


class Arrays(ApiView):
    @operation("List arrays", query=ArraysQuery, page=ArrayResponse)
    def get(self, request: Request) -> Response:
        query = parse_query(request, ArraysQuery)
        rows = _filter_arrays(self.actor, query).defer("spec")
        serialize = partial(serialize_arrays, with_costs=query.costs)
        return Response(page(rows, query, _list_order(query), serialize))

    @operation(
        "Submit an array, or predict the outcome of submitting it",
        query=SubmitArrayQuery, body=WorkloadSpec, response=ArraySubmissionResponse, status=201,
        alternative=(200, ArrayDryRunResponse),
    )  # fmt: skip
    @idempotent
    def post(self, request: Request) -> Response:
        if parse_query(request, SubmitArrayQuery).dry_run:
            return Response(self._predict(request))
        submitted = arrays.submit(
            actor=self.actor, document=parse_document(request), on_checked=self._charge_rate_limit
        )
        return created_response(
            serialize_submission(submitted.array, submitted.warnings), f"/api/v1/arrays/{submitted.array.pk}"
        )

    def _charge_rate_limit(self, array: WorkloadArray) -> None:
        # The request itself has already been counted once.
        extra_requests = -(-array.task_count // TASKS_PER_REQUEST) - 1
        if extra_requests:
            self.spend("write", f"user {self.request.user.pk}", extra_requests)

    def _predict(self, request: Request) -> ArrayDryRunResponse:
        try:
            array, predicted = arrays.predict(actor=self.actor, document=parse_document(request))
        except Invalid as error:
            errors = [ProblemResponse.InvalidValue(**problem.to_dict()) for problem in error.problems]
            invalid = DryRunResponse(outcome="invalid", workload=None, errors=errors)
            return ArrayDryRunResponse(
                tasks=None, max_running=None, would_start=0, would_evict=0, would_queue=0, first_task=invalid
            )
        return ArrayDryRunResponse(
            tasks=array.task_count,
            max_running=array.max_running,
            would_start=predicted.would_start,
            would_evict=predicted.would_evict,
            would_queue=predicted.would_queue,
            first_task=DryRunResponse(**asdict(predicted.first_task)),
        )


class ArrayPatch(Body):
    """Changes to an array."""

    max_running: Annotated[
        Annotated[int, Field(ge=1, le=TASKS_MAX)] | None,
        Field(description="Maximum number of tasks that hold resources at the same time; null for none."),
    ]


class ArrayDetail(ApiView):
    @operation("Get an array with the counts of its tasks", response=ArrayDetailResponse)
    def get(self, request: Request, array_id: UUID) -> Response:
        return Response(serialize_array(selectors.find_array(self.actor, array_id)))

    @operation(
        "Change how many tasks of an active array may run", body=ArrayPatch, response=ArrayDetailResponse
    )
    def patch(self, request: Request, array_id: UUID) -> Response:
        array = selectors.find_array(self.actor, array_id)
        patch = parse_body(request, ArrayPatch)
        arrays.set_max_running(actor=self.actor, array=array, max_running=patch.max_running)
        return Response(serialize_array(selectors.find_array(self.actor, array_id)))

    @operation("Delete an array that has ended, with its tasks", status=204)
    def delete(self, request: Request, array_id: UUID) -> Response:
        arrays.delete(actor=self.actor, array=selectors.find_array(self.actor, array_id))
        return no_content()


class ChangeTasks(Protocol):
    def __call__(
        self, *, actor: Actor, array: WorkloadArray, indexes: Sequence[int] | None, dry_run: bool
    ) -> int: ...


class ArrayAction(ApiView):
    """Base view for actions on some or all tasks of an array."""

    def change(
        self,
        request: Request,
        array_id: UUID,
        change_tasks: ChangeTasks,
        body: ChangeBody,
        worst: WorstTasks | None = None,
    ) -> Response:
        dry_run = parse_query(request, ChangeQuery).dry_run
        array = selectors.find_array(self.actor, array_id)
        chosen = arrays.worst_tasks(array, worst.metric, worst.goal, worst.count) if worst else []
        indexes = expand(body.indexes) if body.indexes is not None else chosen if worst else None
        changed = change_tasks(actor=self.actor, array=array, indexes=indexes, dry_run=dry_run)
        (serialized,) = serialize_arrays([selectors.find_array(self.actor, array_id)])
        return Response(ArrayChangeResponse(changed=changed, worst=chosen, array=serialized))


class CancelArray(ArrayAction):
    @operation(
        "Cancel the live tasks of an array, or selected ones",
        query=ChangeQuery, body=CancelBody, response=ArrayChangeResponse,
    )  # fmt: skip
    @idempotent
    def post(self, request: Request, array_id: UUID) -> Response:
        body = parse_body(request, CancelBody)
        if body.worst is not None and body.indexes is not None:
            raise Invalid([Problem("worst", "cannot be combined with indexes", "both", "one of the two")])
        return self.change(request, array_id, arrays.cancel, body, body.worst)


class SuspendArray(ArrayAction):
    @operation(
        "Suspend the live tasks of an array, or selected ones",
        query=ChangeQuery, body=ChangeBody, response=ArrayChangeResponse,
    )  # fmt: skip
    @idempotent
    def post(self, request: Request, array_id: UUID) -> Response:
        return self.change(request, array_id, arrays.suspend, parse_body(request, ChangeBody))


class ResumeArray(ArrayAction):
    @operation(
        "Resume the suspended tasks of an array, or selected ones",
        query=ChangeQuery, body=ChangeBody, response=ArrayChangeResponse,
    )  # fmt: skip
    @idempotent
    def post(self, request: Request, array_id: UUID) -> Response:
        return self.change(request, array_id, arrays.resume, parse_body(request, ChangeBody))


class RetryArray(ArrayAction):
    @operation(
        "Submit the failed tasks of an array again, or selected tasks that have ended",
        query=ChangeQuery, body=ChangeBody, response=ArrayChangeResponse,
    )  # fmt: skip
    @idempotent
    def post(self, request: Request, array_id: UUID) -> Response:
        return self.change(request, array_id, arrays.retry, parse_body(request, ChangeBody))


def _filter_arrays(actor: Actor, query: ArraysQuery) -> QuerySet[WorkloadArray]:
    check_names(
        unknown_project_problem(actor, query.project),
        unknown_user_problem(actor, query.submitted_by, path="submitted_by"),
    )
    return filter_by(
        selectors.arrays(actor),
        project__name=query.project,
        state=query.state,
        submitted_by__username=query.submitted_by,
        name__icontains=query.search,
    )


def _list_order(query: ArraysQuery) -> Order:
    return Order(query.sort, (query.sort.lstrip("-"), "id"), is_descending=query.sort.startswith("-"))
