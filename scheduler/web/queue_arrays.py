"""Arrays on the queue page, which lists the queued tasks of an array as one row per pool."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from django.contrib.postgres.aggregates import ArrayAgg
from django.db.models import (
    BigIntegerField,
    Case,
    Count,
    DateTimeField,
    F,
    Max,
    Min,
    OuterRef,
    Q,
    QuerySet,
    Subquery,
    Sum,
    Value,
    When,
    Window,
)
from django.db.models.expressions import Combinable
from django.db.models.fields.json import KT
from django.db.models.functions import Cast, Coalesce, RowNumber

from berth.core.wording.words import format_positions, token_to_words
from pools.models.node import PENDING
from projects.models import Phase
from scheduler.models import Reservation
from scheduler.reports.queues.queue_list import NO_POSITION, NOT_EVALUATED
from scheduler.web.queue_rows import QueueEntry

REQUESTED, EXPECTED, EXPECTED_TIES = "requested_order", "expected_order", "expected_ties"
NEVER, ALWAYS = datetime(9999, 1, 1, tzinfo=UTC), datetime(1, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class QueuedTasks:
    """Several queued tasks of an array that share a row."""

    count: int
    gpu_milli: int
    indexes: str  # array indexes, such as "0 to 3"
    positions: str  # queue positions, such as "2-3, 7", or empty if no task has one
    first_start: datetime | None
    last_start: datetime | None
    # (number of tasks, reason) for each reason that the row does not state
    other_reasons: Sequence[tuple[int, str]]


def one_row_per_array(rows: QuerySet[Any]) -> QuerySet[Any]:
    """Return the rows, keeping only the first task of each array in each pool's queue."""
    place = Window(RowNumber(), partition_by=[F("array_id"), F("queue_pool")], order_by=["queue_order", "pk"])
    tasks = rows.filter(array__isnull=False).order_by().annotate(place=place).filter(place=1)
    return rows.filter(Q(array__isnull=True) | Q(pk__in=tasks.values("pk")))


def annotate_requested_gpus_order(
    rows: QuerySet[Any], sort: str, tasks: QuerySet[Any] | None
) -> QuerySet[Any]:
    """If `sort` is by requested GPUs, annotate the rows with the sort key.

    With `tasks`, the GPUs of an array's tasks are added up in a single row.
    """
    if sort.removeprefix("-") != "gpus":
        return rows
    requested: Any = F("gpu_milli_min")
    if tasks is not None:
        same = tasks.order_by().filter(array=OuterRef("array"), queue_pool=OuterRef("queue_pool"))
        total = same.values("array").annotate(milli=Sum("gpu_milli_min")).values("milli")
        requested = Case(When(array__isnull=False, then=Subquery(total)), default=requested)
    return rows.annotate(**{REQUESTED: Cast(requested, BigIntegerField())})


def annotate_expected_start_order(
    rows: QuerySet[Any], sort: str, tasks: QuerySet[Any] | None
) -> QuerySet[Any]:
    """If `sort` is by expected start, annotate the rows with the sort key.

    In both directions, rows without an expected start come last, and rows with the same start are in queue
    order. With `tasks`, the start of an array is the start of its first task.
    """
    if sort.removeprefix("-") != "expected":
        return rows
    start = _expected_start()
    if tasks is not None:
        same = tasks.order_by().filter(array=OuterRef("array"), queue_pool=OuterRef("queue_pool"))
        first = same.values("array").annotate(first=Min(start)).values("first")
        start = Case(When(array__isnull=False, then=Subquery(first)), default=start)
    is_descending = sort.startswith("-")
    unknown = Value(ALWAYS if is_descending else NEVER, DateTimeField())
    ties = F("reversed_order" if is_descending else "queue_order")
    return rows.annotate(**{EXPECTED: Coalesce(start, unknown), EXPECTED_TIES: ties})


def _expected_start() -> Combinable:
    booting = Reservation.objects.filter(workload=OuterRef("pk"), node__state__in=PENDING).order_by()
    ready = booting.values("workload").annotate(
        unknown=Count("pk", filter=Q(node__ready_at=None)), ready_at=Max("node__ready_at")
    )
    ready_at = Subquery(ready.filter(unknown=0).values("ready_at"))
    return Coalesce(
        Case(When(phase=Phase.RESERVED, then=ready_at)),
        Cast(KT("explanation__expected_start"), DateTimeField()),
    )


def load_queued_tasks(entries: Sequence[QueueEntry], tasks: QuerySet[Any]) -> None:
    """Set `queued_tasks` and `title` on each row.

    `queued_tasks` is None unless the row stands for several tasks of an array.
    """
    arrays = {row.array_id for row, *_ in entries} - {None}
    groups = _task_groups(tasks.filter(array__in=arrays)) if arrays else {}
    for row, *_ in entries:
        groups_of_row = groups.get((row.array_id, row.queue_pool), [])
        has_several = sum(group["count"] for group in groups_of_row) > 1
        row.queued_tasks = _queued_tasks(row, groups_of_row) if has_several else None
        row.title = row.array.name if has_several else row.name


def _task_groups(tasks: QuerySet[Any]) -> Mapping[tuple[UUID, str], list[dict[str, Any]]]:
    start = _expected_start()
    evaluated = Q(queue_position__gt=NO_POSITION, queue_position__lt=NOT_EVALUATED)
    groups = tasks.order_by().values("array_id", "queue_pool", "phase", "reason").annotate(
        count=Count("pk"), gpu_milli=Sum("gpu_milli_min"), indexes=ArrayAgg("array_index"),
        positions=ArrayAgg("queue_position", filter=evaluated), first=Min(start), last=Max(start),
    )  # fmt: skip
    result = defaultdict(list)
    for group in groups:
        result[group["array_id"], group["queue_pool"]].append(group)
    return result


def _queued_tasks(row: Any, groups: Sequence[Mapping[str, Any]]) -> QueuedTasks:
    return QueuedTasks(
        count=sum(group["count"] for group in groups),
        gpu_milli=sum(group["gpu_milli"] for group in groups),
        indexes=_format_indexes([index for group in groups for index in group["indexes"]]),
        positions=format_positions({each for group in groups for each in group["positions"] or ()}),
        first_start=min((group["first"] for group in groups if group["first"]), default=None),
        last_start=max((group["last"] for group in groups if group["last"]), default=None),
        other_reasons=sorted(
            (group["count"], _reason_label(group))
            for group in groups
            if (group["phase"], group["reason"]) != (row.phase, row.reason)
        ),
    )


def _reason_label(group: Mapping[str, Any]) -> str:
    reserved = group["phase"] == Phase.RESERVED
    return "reserved" if reserved else token_to_words(group["reason"]).lower() or "not evaluated yet"


def _format_indexes(indexes: Sequence[int]) -> str:
    """Return the smallest and the largest index, such as "0 to 3"."""
    return f"{min(indexes)} to {max(indexes)}"
