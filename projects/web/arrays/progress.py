"""Show the progress of arrays as bars and counts."""

import uuid
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Count, Max, OuterRef, Subquery, Sum

from berth.core.wording.words import format_count, token_to_words
from berth.server.web.charts.bars import Bar, stacked_bar
from projects.models import ArrayState, Phase, Workload, WorkloadArray
from projects.models.workloads import LIVE_PHASES
from projects.services.arrays import TaskCounts, count_tasks_by_array
from projects.services.workloads.pending.unschedulable import REASON as UNSCHEDULABLE


@dataclass(frozen=True, slots=True)
class CurrentTasks:
    """Tasks of an active array that do not wait for earlier tasks.

    `first_start` is set while tasks are running, and `last_change` otherwise. GPU amounts are in milli-GPUs.
    """

    first_start: datetime | None = None
    last_change: datetime | None = None
    gpu_milli_now: int = 0
    gpu_milli_requested: int = 0


@dataclass(frozen=True, slots=True)
class ArrayProgress:
    """Task counts of an array, with a progress bar in the colours of the array's page."""

    counts: TaskCounts
    bar: Bar
    outcome: str  # state of the array
    # Time of the submission, the first task start or the latest task change, depending on the state.
    since: datetime
    unschedulable: int = 0  # number of queued tasks that can never start
    gpu_milli_now: int = 0  # milli-GPU allocated to the tasks
    gpu_milli_requested: int = 0  # milli-GPU requested by live tasks that do not wait for earlier tasks

    @property
    def state(self) -> str:
        """State to show in lists: the outcome of an ended array, or a summary of the tasks of an active
        array.
        """
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
    def state_text(self) -> str:
        """State with the progress, such as "Running, 40% completed". Empty if there is no progress to
        show.
        """
        percent = min(99, round(100 * self.counts.completed / max(1, self.counts.total)))
        if self.outcome != ArrayState.ACTIVE or not percent or self.is_unschedulable:
            return ""
        return f"{token_to_words(self.state)}, {percent}% completed"

    @property
    def is_unschedulable(self) -> bool:
        """Return whether no task is running, at least one is queued, and all queued tasks are
        unschedulable.
        """
        return not self.running and 0 < self.unschedulable == self.counts.pending

    @property
    def running(self) -> int:
        """Number of tasks with allocated resources."""
        return _running(self.counts)

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
        """Nonzero counts with their labels. Failed tasks come last."""
        parts = {
            "running": self.running, "pending": self.queued - self.unschedulable,
            "unschedulable": self.unschedulable, "waiting": self.counts.held,
            "suspended": self.counts.suspended, "cancelled": self.counts.cancelled,
            "failed": self.counts.failed,
        }  # fmt: skip
        return [{"count": count, "word": word} for word, count in parts.items() if count]

    @property
    def highlights(self) -> list[dict[str, Any]]:
        """Counts for the workload list, whose state and queue positions already cover pending tasks."""
        return [part for part in self.summary_parts if part["word"] in ("running", "unschedulable", "failed")]

    @property
    def legend(self) -> list[dict[str, Any]]:
        """Legend of the bar: the colour, label, count and tab of each task state, in the bar's order.

        Most states without tasks are omitted.
        """
        counts = self.counts
        parts = (
            ("completed", counts.completed, "completed", "completed"),
            ("failed", counts.failed, "failed", "failed"),
            ("cancelled", counts.cancelled, "cancelled", "cancelled"),
            ("running", self.running, "running", "running"),
            ("pending", self.queued, "pending", "pending"),
            ("held", counts.held, "waiting for earlier tasks", "pending"),
            ("suspended", counts.suspended, "suspended", "suspended"),
        )
        return [
            {"kind": kind, "count": count, "words": words, "tab": tab if count else ""}
            for kind, count, words, tab in parts
            if count or kind == "completed"
        ]


def load_progress(arrays: Collection[WorkloadArray]) -> dict[uuid.UUID, ArrayProgress]:
    """Return the progress of each array, keyed by array ID. Runs at most five queries."""
    counts = count_tasks_by_array(arrays) if arrays else {}
    pending = [pk for pk, each in counts.items() if each.pending]
    rows = Workload.objects.filter(array__in=pending, phase=Phase.PENDING, held=False, reason=UNSCHEDULABLE)
    impossible = dict(rows.order_by().values_list("array").annotate(Count("pk"))) if pending else {}
    now = _current_tasks({array.pk: counts[array.pk] for array in arrays if array.state == ArrayState.ACTIVE})
    return {
        array.pk: _build_progress(
            array, counts[array.pk], now.get(array.pk, CurrentTasks()), impossible.get(array.pk, 0)
        )
        for array in arrays
    }


def _current_tasks(active: Mapping[uuid.UUID, TaskCounts]) -> dict[uuid.UUID, CurrentTasks]:
    """Return the current tasks of active arrays.

    Ended tasks are read only to find an array's first start or last change.
    """
    if not active:
        return {}
    running = [pk for pk, counts in active.items() if _running(counts)]
    idle = [pk for pk in active if pk not in running]
    tasks = Workload.objects.filter(superseded=False, held=False).order_by()
    started = tasks.filter(first_started_at__isnull=False)
    first = started.filter(array=OuterRef("pk")).order_by("first_started_at").values("first_started_at")[:1]
    first_rows = WorkloadArray.objects.filter(pk__in=running).order_by().values_list("pk", Subquery(first))
    first_starts = dict(first_rows) if running else {}
    last_rows = started.filter(array__in=idle).values_list("array").annotate(Max("since"))
    last_changes = dict(last_rows) if idle else {}
    live = tasks.filter(array__in=list(active), phase__in=LIVE_PHASES)
    sums = {
        array: amounts
        for array, *amounts in live.values_list("array").annotate(Sum("gpu_milli_now"), Sum("gpu_milli_min"))
    }
    return {
        pk: CurrentTasks(first_starts.get(pk), last_changes.get(pk), *sums.get(pk, (0, 0))) for pk in active
    }


def _running(counts: TaskCounts) -> int:
    """Return the number of tasks with allocated resources."""
    return counts.starting + counts.running + counts.stopping


def _build_progress(
    array: WorkloadArray, counts: TaskCounts, now: CurrentTasks, unschedulable: int
) -> ArrayProgress:
    running = _running(counts)
    label = f"{counts.completed:,} of {format_count(counts.total, 'task')} completed"
    parts = [
        (counts.completed, "used"),
        (counts.failed, "failed"),
        (counts.cancelled, "cancelled"),
        (running, "running"),
        (counts.pending + counts.reserved, "pending"),
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
