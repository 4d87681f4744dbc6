"""Columns of the queue page."""

from datetime import UTC, datetime
from typing import Any

from django.db.models import Count, DateTimeField, Max, OuterRef, Q, QuerySet, Subquery, Value
from django.db.models.fields.json import KT
from django.db.models.functions import Cast, Coalesce

from berth.core.values.amounts import MILLI
from berth.server.web.lists.tables import Column
from pools.models.node import PENDING
from scheduler.models import Reservation
from scheduler.reports.queues.queue_ordering import describe_queue_states
from scheduler.web.queue_arrays import REQUESTED
from scheduler.web.queue_rows import QueueEntry, pool_words

EXPECTED = "expected_order"
NEVER, ALWAYS = datetime(9999, 1, 1, tzinfo=UTC), datetime(1, 1, 1, tzinfo=UTC)
COLUMNS: tuple[Column[QueueEntry], ...] = (
    Column(
        "position",
        "Position",
        lambda row: row[0].queue_position or None if row[2] else None,
        order="queue_position",
        number=True,
    ),
    Column("name", "Workload", lambda row: row[0].name, order="name"),
    Column(
        "project",
        "Project",
        lambda row: row[0].project.name,
        order="project__name",
        is_secondary=True,
    ),
    Column("pool", "Pool", lambda row: pool_words(row[0]), order="pool_and_position"),
    Column(
        "gpus",
        "Requested",
        lambda row: row[0].gpu_milli_min / MILLI,
        "GPUs",
        REQUESTED,
        number=True,
        is_largest_first=True,
    ),
    Column(
        "priority",
        "Priority",
        lambda row: row[0].priority,
        order="priority_and_position",
        number=True,
        is_largest_first=True,
    ),
    Column(
        "since",
        "Pending since",
        lambda row: row[0].pending_since,
        order="pending_since",
        is_secondary=True,
        page_title="Pending",
    ),
    Column("reason", "Pending reason", lambda row: row[0].reason, order="reason"),
    Column(
        "standing",
        "Queue",
        lambda row: describe_queue_states((row[0].explanation or {}).get("ordering", ())),
        in_file=True,
    ),
    Column("message", "Message", lambda row: row[0].message, in_file=True),
    Column("expected", "Expected start", lambda row: row[1], order=EXPECTED),
    Column(
        "ordering",
        "Ordering",
        lambda row: "; ".join((row[0].explanation or {}).get("ordering", ())),
        in_file=True,
    ),
    Column("submitted", "Submitted", lambda row: row[0].submitted_at, in_file=True),
)
SORT_CHOICES = {
    "": "Queue order", "-priority": "Highest priority", "-gpus": "Most GPUs", "since": "Longest pending",
    "expected": "Earliest start",
    "name": "Name",
}  # fmt: skip
OTHER_SORTS = {column.key for column in COLUMNS if column.order} - {"position", "pool"}


def with_expected_order(rows: QuerySet[Any], sort: str) -> QuerySet[Any]:
    """Annotate the rows with the expected start if `sort` refers to it. Otherwise, return the rows unchanged.

    Workloads without an expected start come last in both directions.
    """
    if sort.removeprefix("-") != "expected":
        return rows
    booting = Reservation.objects.filter(workload=OuterRef("pk"), node__state__in=PENDING).order_by()
    ready = booting.values("workload").annotate(
        unknown=Count("pk", filter=Q(node__ready_at=None)), ready_at=Max("node__ready_at")
    )
    return rows.annotate(
        **{
            EXPECTED: Coalesce(
                Subquery(ready.filter(unknown=0).values("ready_at")),
                Cast(KT("explanation__expected_start"), DateTimeField()),
                Value(ALWAYS if sort.startswith("-") else NEVER, DateTimeField()),
            )
        }
    )
