"""Progress of arrays as bars and counts."""

import uuid
from collections.abc import Collection
from dataclasses import dataclass

from berth.core.words import format_count
from berth.server.web.charts.bars import Bar, stacked_bar
from projects.models import WorkloadArray
from projects.services.arrays import TaskCounts, count_tasks_by_array


@dataclass(frozen=True, slots=True)
class ArrayProgress:
    """Counts of an array's tasks, with a progress bar: completed, failed, cancelled and running tasks."""

    counts: TaskCounts
    bar: Bar

    @property
    def running(self) -> int:
        """Number of tasks with allocated resources."""
        return self.counts.starting + self.counts.running + self.counts.stopping

    @property
    def pending(self) -> int:
        """Number of tasks that have not started, including held tasks."""
        return self.counts.pending + self.counts.reserved + self.counts.held

    @property
    def summary(self) -> str:
        """Nonzero counts as text, such as `2 running, 97 pending, 1 failed`."""
        parts = {
            "running": self.running, "pending": self.pending, "suspended": self.counts.suspended,
            "failed": self.counts.failed, "cancelled": self.counts.cancelled,
        }  # fmt: skip
        return ", ".join(f"{count:,} {word}" for word, count in parts.items() if count)


def load_progress(arrays: Collection[WorkloadArray]) -> dict[uuid.UUID, ArrayProgress]:
    """Return the progress of each array by array ID, using one query."""
    return {pk: _progress(counts) for pk, counts in count_tasks_by_array(arrays).items()} if arrays else {}


def _progress(counts: TaskCounts) -> ArrayProgress:
    running = counts.starting + counts.running + counts.stopping
    label = f"{counts.completed:,} of {format_count(counts.total, 'task')} completed"
    parts = [
        (counts.completed, "used"),
        (counts.failed, "failed"),
        (counts.cancelled, "cancelled"),
        (running, "requested"),
    ]
    return ArrayProgress(counts, stacked_bar(parts, counts.total, label))
