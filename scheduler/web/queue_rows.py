"""Rows of the queue page, with section headings and explanations of the order."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby, pairwise
from typing import Any

from projects.models import Phase
from scheduler.engine.plan import Reason
from scheduler.reports.queues.queue_ordering import (
    describe_order_difference,
    differing_queues,
    is_not_ready,
    order_difference_clause,
)

# Workload, expected start, whether it has been evaluated, and a phrase about its reserved nodes.
QueueEntry = tuple[Any, datetime | None, bool, str]


RESERVED, QUEUED, NEW = "Reserved", "In queue order", "New"
NOT_READY = "Cannot start yet"
NOTES = {
    NEW: "by priority and pending time until a scheduling cycle sets their positions",
    NOT_READY: "last in the queue until the reason no longer applies",
}


@dataclass(frozen=True, slots=True)
class QueueSection:
    """Section of a pool's queue, such as reserved workloads."""

    title: str
    has_heading: bool
    note: str


def pool_label(row: Any) -> str:
    """Return the row's pool, or all pools that it allows if it has not been evaluated yet."""
    if row.queue_pool:
        return str(row.queue_pool)
    if len(row.pools) > 2:
        return f"{row.pools[0]} or {len(row.pools) - 1} other pools"
    return " or ".join(row.pools)


def annotate_order(entries: Sequence[QueueEntry], *, in_order: bool) -> None:
    """Set the section headings, and the reason why a row is ahead of a higher-priority workload.

    Each heading is set on the first row of its section. A list that is not in queue order has neither
    headings nor reasons.
    """
    for row, *_ in entries:
        row.section, row.ahead_of, row.ahead_because = None, None, ""
        row.next_row, row.before_next_because = None, ""
    if not in_order:
        return
    sections = [(title, [row for row, *_ in rows]) for title, rows in groupby(entries, _section_title)]
    for title, rows in sections:
        if title == QUEUED:
            _explain_priorities(rows)
            _explain_next_rows(rows)
        if len(sections) > 1 or title != QUEUED:
            rows[0].section = QueueSection(title, _has_heading(title, rows), NOTES.get(title, ""))


def _section_title(entry: QueueEntry) -> str:
    row, _, is_evaluated, _ = entry
    if row.phase == Phase.RESERVED:
        return RESERVED
    if not is_evaluated:
        return NEW
    return NOT_READY if is_not_ready(_queue_key_sentences(row)) else QUEUED


def _has_heading(title: str, rows: Sequence[Any]) -> bool:
    if title == NEW:
        return any(row.queue_pool for row in rows)
    return title == NOT_READY and any(row.reason != Reason.BACKOFF for row in rows)


def _explain_priorities(rows: Sequence[Any]) -> None:
    """For each row ahead of a higher-priority workload, store that workload and the reason for the order."""
    for index, row in enumerate(rows):
        other = next((later for later in rows[index + 1 :] if later.priority > row.priority), None)
        if other is not None:
            row.ahead_of = other
            row.ahead_because = describe_order_difference(
                _queue_key_sentences(row), _queue_key_sentences(other)
            )


def _explain_next_rows(rows: Sequence[Any]) -> None:
    """On each row, store the next row and the reason why it comes later."""
    for row, following in pairwise(rows):
        keys = _queue_key_sentences(row), _queue_key_sentences(following)
        names = differing_queues(*keys)
        if names:
            row.before_next_because = f"{names[0]} {order_difference_clause(*keys)}"
        elif row.priority > following.priority:
            row.before_next_because = f"priority {row.priority} is higher than {following.priority}"
        elif (row.project_id, row.priority) == (following.project_id, following.priority):
            is_older = row.pending_since < following.pending_since
            row.before_next_because = "pending for longer" if is_older else ""
        row.next_row = following


def _queue_key_sentences(row: Any) -> Sequence[str]:
    return (row.explanation or {}).get("ordering") or ()
