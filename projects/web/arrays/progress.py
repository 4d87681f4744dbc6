"""Show the progress of arrays as bars and counts."""

import uuid
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Count, Min

from berth.core.words import format_count
from berth.server.web.charts.bars import Bar, stacked_bar
from projects.models import ArrayState, Phase, Workload, WorkloadArray
from projects.services.arrays import TaskCounts, count_tasks_by_array
from projects.services.workloads.unschedulable import REASON as UNSCHEDULABLE


@dataclass(frozen=True, slots=True)
class ArrayProgress:
    """Task counts of an array, with a progress bar for completed, failed, cancelled, running and queued
    tasks.

    The bar has the same colours as the squares on the array's page.
    """

    counts: TaskCounts
    bar: Bar
    outcome: str  # state of the array
    since: datetime  # submission, or the first start of a task if any task is running
    unschedulable: int = 0  # number of queued tasks that can never start

    @property
    def state(self) -> str:
        """State shown in lists: the outcome of an ended array, else a state that summarizes its tasks."""
        if self.outcome != ArrayState.ACTIVE:
            return self.outcome
        if self.is_unschedulable:
            return "unschedulable"
        if self.running:
            return str(Phase.RUNNING)
        if self.pending:
            return str(Phase.PENDING)
        return str(Phase.SUSPENDED) if self.counts.suspended else self.outcome

    @property
    def title(self) -> str:
        """Text of the state's label if it differs from the state.

        An array that waits between tasks shows its progress, because *Pending* would suggest that it has not
        started.
        """
        counts = self.counts
        has_started = counts.completed + counts.failed + counts.cancelled > 0
        is_waiting = self.state == Phase.PENDING and has_started
        return f"{self.completed_percent}% done" if is_waiting else ""

    @property
    def is_unschedulable(self) -> bool:
        """Return whether no task is running and all queued tasks are unschedulable."""
        return not self.running and 0 < self.unschedulable == self.counts.pending

    @property
    def running(self) -> int:
        """Number of tasks with allocated resources."""
        return self.counts.starting + self.counts.running + self.counts.stopping

    @property
    def pending(self) -> int:
        """Number of tasks that have not started, including held tasks."""
        return self.counts.pending + self.counts.reserved + self.counts.held

    @property
    def completed_percent(self) -> int:
        """Percentage of completed tasks, rounded down."""
        return 100 * self.counts.completed // max(self.counts.total, 1)

    @property
    def summary_parts(self) -> list[dict[str, Any]]:
        """Nonzero counts, each with its word. Failed tasks come last."""
        parts = {
            "running": self.running, "pending": self.pending - self.unschedulable,
            "unschedulable": self.unschedulable, "suspended": self.counts.suspended,
            "cancelled": self.counts.cancelled, "failed": self.counts.failed,
        }  # fmt: skip
        return [{"count": count, "word": word} for word, count in parts.items() if count]

    @property
    def summary(self) -> str:
        """Nonzero counts as text, such as `2 running, 97 pending, 1 failed`. Failed tasks come last."""
        return ", ".join(f"{part['count']:,} {part['word']}" for part in self.summary_parts)


def load_progress(arrays: Collection[WorkloadArray]) -> dict[uuid.UUID, ArrayProgress]:
    """Return the progress of each array, keyed by array ID. Runs at most three queries."""
    counts = count_tasks_by_array(arrays) if arrays else {}
    pending = [pk for pk, each in counts.items() if each.pending]
    rows = Workload.objects.filter(array__in=pending, phase=Phase.PENDING, held=False, reason=UNSCHEDULABLE)
    impossible = dict(rows.order_by().values_list("array").annotate(Count("pk"))) if pending else {}
    starts = _first_starts([pk for pk, each in counts.items() if each.running])
    return {
        array.pk: _progress(
            array, counts[array.pk], starts.get(array.pk, array.submitted_at), impossible.get(array.pk, 0)
        )
        for array in arrays
    }


def _first_starts(running: Collection[uuid.UUID]) -> dict[uuid.UUID, datetime]:
    if not running:
        return {}
    tasks = Workload.objects.filter(array__in=running, first_started_at__isnull=False).order_by()
    return dict(tasks.values_list("array").annotate(Min("first_started_at")))


def _progress(array: WorkloadArray, counts: TaskCounts, since: datetime, unschedulable: int) -> ArrayProgress:
    running = counts.starting + counts.running + counts.stopping
    label = f"{counts.completed:,} of {format_count(counts.total, 'task')} completed"
    parts = [
        (counts.completed, "used"),
        (counts.failed, "failed"),
        (counts.cancelled, "cancelled"),
        (running, "running"),
        (counts.pending + counts.reserved, "requested"),
    ]
    return ArrayProgress(counts, stacked_bar(parts, counts.total, label), array.state, since, unschedulable)
