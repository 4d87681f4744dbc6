"""Filters, search and sorting for workload lists."""

from typing import Annotated, Literal
from uuid import UUID

from django.db.models import Q, QuerySet
from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from berth.db.queries.known_names import NameColumn, check_names, unknown_value_problem
from berth.server.api.pagination import Order, filter_by
from berth.server.api.requests import ListQuery, Word
from projects import selectors
from projects.actor import Actor
from projects.api.workloads.schemas import PhaseName, WorkloadKindName
from projects.known_names import (
    unknown_department_problem,
    unknown_id_problem,
    unknown_pool_problem,
    unknown_project_problem,
    unknown_user_problem,
)
from projects.known_words import REASONS
from projects.models import Workload
from projects.models.workloads import HAS_LABELS

Sort = Literal[
    "submitted_at",
    "-submitted_at",
    "name",
    "-name",
    "priority",
    "-priority",
    "phase",
    "-phase",
    "gpus",
    "-gpus",
]
COLUMNS = {"gpus": "gpu_milli_min"}


def _validate_label(text: str) -> str:
    key, equals, _ = text.partition("=")
    if not key or not equals:
        raise PydanticCustomError("label", "is not a valid label", {"allowed": "key=value"})
    return text


Label = Annotated[Word, AfterValidator(_validate_label)]


class WorkloadsQuery(ListQuery):
    project: Word | None = None
    department: Word | None = None
    pool: Annotated[Word, Field(description="Placed in this pool, or eligible for it.")] | None = None
    phase: Annotated[tuple[PhaseName, ...], Field(max_length=9, description="May be repeated.")] = ()
    kind: WorkloadKindName | None = None
    reason: Word | None = None
    label: Annotated[
        tuple[Label, ...], Field(max_length=16, description="key=value; all labels must match.")
    ] = ()
    submitted_by: Word | None = None
    array: Annotated[UUID, Field(description="Tasks of this array, all attempts.")] | None = None
    in_array: (
        Annotated[
            bool,
            Field(description="Only tasks of arrays (true), or everything except tasks of arrays (false)."),
        ]
        | None
    ) = None
    superseded: Annotated[bool, Field(description="Whether the task has a later attempt.")] | None = None
    search: Annotated[Word, Field(description="Part of the name, or the full ID.")] | None = None
    sort: Sort = "-submitted_at"


def sort_order(query: WorkloadsQuery) -> Order:
    name = query.sort.lstrip("-")
    return Order(query.sort, (COLUMNS.get(name, name), "id"), is_descending=query.sort.startswith("-"))


def filter_workloads(actor: Actor, query: WorkloadsQuery) -> QuerySet[Workload]:
    """Return the visible workloads that match the query.

    Raises Invalid for names that the user cannot see.
    """
    rows = selectors.workloads(actor)
    allowances_in_pool = Q(pool__name=query.pool) | Q(pool__isnull=True, pools__contains=[query.pool])
    check_names(
        unknown_project_problem(actor, query.project),
        unknown_department_problem(actor, query.department),
        unknown_pool_problem(actor, query.pool, NameColumn(rows, "pool__name", allowances_in_pool)),
        unknown_user_problem(actor, query.submitted_by, path="submitted_by"),
        unknown_id_problem("array", "an array", query.array, (selectors.arrays(actor), "pk")),
        unknown_value_problem("reason", query.reason, REASONS, NameColumn(rows, "reason")),
    )
    rows = filter_by(
        rows,
        array=query.array,
        superseded=query.superseded,
        array__isnull=None if query.in_array is None else not query.in_array,
        project__name=query.project,
        project__department__name=query.department,
        kind=query.kind,
        reason=query.reason,
        submitted_by__username=query.submitted_by,
        phase__in=query.phase or None,
    )
    if query.pool is not None:
        rows = rows.filter(allowances_in_pool)
    for label in query.label:
        key, _, value = label.partition("=")
        rows = rows.filter(HAS_LABELS, labels__contains={key: value})
    return rows if query.search is None else rows.filter(_name_or_id_condition(query.search))


def _name_or_id_condition(text: str) -> Q:
    try:
        return Q(pk=UUID(text))
    except ValueError:
        return Q(name__icontains=text)
