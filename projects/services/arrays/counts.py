"""Count an array's tasks by phase."""

import uuid
from collections import Counter
from collections.abc import Collection
from dataclasses import asdict, dataclass, replace

from django.db.models import Count, QuerySet

from projects.models import Workload, WorkloadArray


@dataclass(frozen=True, slots=True)
class TaskCounts:
    """Number of an array's tasks in each phase.

    Held tasks do not count as pending. Only the last attempt of each task counts.
    """

    held: int = 0
    pending: int = 0
    reserved: int = 0
    starting: int = 0
    running: int = 0
    stopping: int = 0
    suspended: int = 0
    completed: int = 0
    failed: int = 0
    cancelled: int = 0

    @property
    def ended(self) -> int:
        return self.completed + self.failed + self.cancelled

    @property
    def total(self) -> int:
        return sum(asdict(self).values())

    @property
    def outcome(self) -> str:
        """Outcome as a sentence, such as "990 of 1,000 tasks completed, 8 failed and 2 were
        cancelled."
        """
        parts = [f"{self.completed:,} of {self.total:,} tasks completed"]
        parts += [f"{self.failed:,} failed"] if self.failed else []
        verb = "was" if self.cancelled == 1 else "were"
        parts += [f"{self.cancelled:,} {verb} cancelled"] if self.cancelled else []
        return f"{' and '.join([', '.join(parts[:-1]), parts[-1]]) if parts[1:] else parts[0]}."

    @property
    def live(self) -> int:
        return self.total - self.ended


def count_tasks_by_array(arrays: Collection[WorkloadArray]) -> dict[uuid.UUID, TaskCounts]:
    """Return the task counts of each array, keyed by array ID. Runs one query."""
    counts = {array.pk: TaskCounts() for array in arrays}
    rows = Workload.objects.filter(array__in=list(counts), superseded=False).order_by()
    for pk, phase, held, count in rows.values_list("array", "phase", "held").annotate(Count("pk")):
        counts[pk] = replace(counts[pk], **{"held" if held else phase: count})
    return counts


def count_tasks(tasks: QuerySet[Workload]) -> TaskCounts:
    """Return the number of tasks in each phase, using one query."""
    rows = tasks.order_by().values_list("phase", "held").annotate(Count("pk"))
    counts = Counter[str]()
    for phase, held, count in rows:
        counts["held" if held else phase] += count
    return TaskCounts(**counts)
