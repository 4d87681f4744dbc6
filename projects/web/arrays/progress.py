"""Show the progress of arrays as bars and counts."""

import uuid
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Count, Max, Min, Q, Sum

from berth.core.words import format_count
from berth.server.web.charts.bars import Bar, stacked_bar
from projects.models import ArrayState, Phase, Workload, WorkloadArray
from projects.models.workloads import LIVE_PHASES
from projects.services.arrays import TaskCounts, count_tasks_by_array
from projects.services.workloads.unschedulable import REASON as UNSCHEDULABLE


@dataclass(frozen=True, slots=True)
class CurrentTasks:
    """Tasks of an active array that do not wait for earlier tasks.

    `last_change` is the time of the last change to a task that has run. GPU amounts are in thousandths.
    """

    first_start: datetime | None = None
    last_change: datetime | None = None
    gpu_milli_now: int = 0
    gpu_milli_requested: int = 0


@dataclass(frozen=True, slots=True)
class ArrayProgress:
    """Task counts of an array, with a progress bar for completed, failed, cancelled, running and queued
    tasks.

    The bar has the same colours as the squares on the array's page.
    """

    counts: TaskCounts
    bar: Bar
    outcome: str  # state of the array
    # Depending on the state, the time of the submission, the first task start or the latest task change.
    since: datetime
    unschedulable: int = 0  # number of queued tasks that can never start
    gpu_milli_now: int = 0  # milli-GPU allocated to the tasks
    gpu_milli_requested: int = 0  # milli-GPU requested by live tasks that do not wait for earlier tasks

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
    def is_unschedulable(self) -> bool:
        """Return whether no task is running, and tasks are queued that are all unschedulable."""
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
    def queued(self) -> int:
        """Number of pending and reserved tasks that do not wait for earlier tasks."""
        return self.pending - self.counts.held

    @property
    def summary_parts(self) -> list[dict[str, Any]]:
        """Nonzero counts, each with its word. Failed tasks come last."""
        parts = {
            "running": self.running, "pending": self.queued - self.unschedulable,
            "unschedulable": self.unschedulable, "waiting": self.counts.held,
            "suspended": self.counts.suspended, "cancelled": self.counts.cancelled,
            "failed": self.counts.failed,
        }  # fmt: skip
        return [{"count": count, "word": word} for word, count in parts.items() if count]

    @property
    def summary(self) -> str:
        """Nonzero counts as text, such as `2 running, 95 waiting, 1 failed`. Failed tasks come last."""
        return ", ".join(f"{part['count']:,} {part['word']}" for part in self.summary_parts)


def load_progress(arrays: Collection[WorkloadArray]) -> dict[uuid.UUID, ArrayProgress]:
    """Return the progress of each array, keyed by array ID. Runs at most three queries."""
    counts = count_tasks_by_array(arrays) if arrays else {}
    pending = [pk for pk, each in counts.items() if each.pending]
    rows = Workload.objects.filter(array__in=pending, phase=Phase.PENDING, held=False, reason=UNSCHEDULABLE)
    impossible = dict(rows.order_by().values_list("array").annotate(Count("pk"))) if pending else {}
    now = _current_tasks([array.pk for array in arrays if array.state == ArrayState.ACTIVE])
    return {
        array.pk: _build_progress(
            array, counts[array.pk], now.get(array.pk, CurrentTasks()), impossible.get(array.pk, 0)
        )
        for array in arrays
    }


def _current_tasks(active: Collection[uuid.UUID]) -> dict[uuid.UUID, CurrentTasks]:
    if not active:
        return {}
    tasks = Workload.objects.filter(array__in=active, superseded=False, held=False).order_by()
    rows = tasks.values_list("array").annotate(
        first_start=Min("first_started_at"),
        last_change=Max("since", filter=Q(first_started_at__isnull=False)),
        allocated=Sum("gpu_milli_now"),
        requested=Sum("gpu_milli_min", filter=Q(phase__in=LIVE_PHASES), default=0),
    )
    return {array: CurrentTasks(*values) for array, *values in rows}


def _build_progress(
    array: WorkloadArray, counts: TaskCounts, now: CurrentTasks, unschedulable: int
) -> ArrayProgress:
    running = counts.starting + counts.running + counts.stopping
    label = f"{counts.completed:,} of {format_count(counts.total, 'task')} completed"
    parts = [
        (counts.completed, "used"),
        (counts.failed, "failed"),
        (counts.cancelled, "cancelled"),
        (running, "running"),
        (counts.pending + counts.reserved, "requested"),
    ]
    return ArrayProgress(
        counts,
        stacked_bar(parts, counts.total, label),
        array.state,
        (now.first_start if running else now.last_change) or array.submitted_at,
        unschedulable,
        now.gpu_milli_now,
        now.gpu_milli_requested,
    )
