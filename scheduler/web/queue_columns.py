"""Columns of the queue page."""

from berth.core.values.amounts import MILLI
from berth.server.web.lists.tables import Column
from scheduler.reports.queues.queue_ordering import describe_queue_states
from scheduler.web.queue_arrays import EXPECTED, EXPECTED_TIES, REQUESTED
from scheduler.web.queue_rows import QueueEntry, pool_label

COLUMNS: tuple[Column[QueueEntry], ...] = (
    Column(
        "position",
        "Position",
        lambda row: row[0].queue_position or None if row[2] else None,
        order="queue_order",
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
    Column(
        "pool", "Pool", lambda row: pool_label(row[0]), order=("pool_key", "queue_order"), is_csv_only=True
    ),
    Column(
        "gpus",
        "Requested",
        lambda row: row[0].gpu_milli_min / MILLI,
        "GPUs",
        (REQUESTED, "reversed_order"),
        number=True,
        is_largest_first=True,
    ),
    Column(
        "priority",
        "Priority",
        lambda row: row[0].priority,
        order=("priority", "reversed_order"),
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
        is_csv_only=True,
    ),
    Column("message", "Message", lambda row: row[0].message, is_csv_only=True),
    Column("expected", "Expected start", lambda row: row[1], order=(EXPECTED, EXPECTED_TIES)),
    Column(
        "ordering",
        "Ordering",
        lambda row: "; ".join((row[0].explanation or {}).get("ordering", ())),
        is_csv_only=True,
    ),
    Column("submitted", "Submitted", lambda row: row[0].submitted_at, is_csv_only=True),
    Column(
        "user",
        "Submitted by",
        lambda row: row[0].submitted_by.username if row[0].submitted_by else "",
        is_csv_only=True,
    ),
)
SORT_CHOICES = {
    "": "Queue order", "-priority": "Highest priority", "-gpus": "Most GPUs", "since": "Longest pending",
    "expected": "Earliest start",
    "name": "Name",
}  # fmt: skip
OTHER_SORTS = {column.key for column in COLUMNS if column.order} - {"position", "pool"}
