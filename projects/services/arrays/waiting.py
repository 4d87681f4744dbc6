"""Explain why a task of an array is held."""

from collections.abc import Mapping
from dataclasses import dataclass

from projects.models import Workload
from projects.models.arrays import PENDING_MAX
from projects.services.arrays.counts import count_tasks_by_array


@dataclass(frozen=True, slots=True)
class HeldTaskReason:
    """Reason why a task is held, with the numbers for the message."""

    message: str
    numbers: Mapping[str, int]


def explain_held_task(task: Workload) -> HeldTaskReason:
    """Return why a held task has not been released yet, given the current counts of its array."""
    array = task.array
    assert array is not None
    counts = count_tasks_by_array([array])[array.pk]
    active = counts.reserved + counts.starting + counts.running + counts.stopping
    before = Workload.objects.filter(array=array, held=True, array_index__lt=task.array_index).count()
    numbers = {"active": active, "pending": counts.pending, "tasks_before": before}
    if array.max_running is not None and active + counts.pending >= array.max_running:
        numbers["max_running"] = array.max_running
        if counts.pending:
            state = f"{active} running and {counts.pending} queued, of at most {array.max_running}"
        else:
            state = f"{active} of at most {array.max_running} running"
    else:
        numbers["pending_max"] = PENDING_MAX
        state = f"{counts.pending} of at most {PENDING_MAX} queued"
    others = "1 task" if before == 1 else f"{before:,} tasks"
    return HeldTaskReason(f"Tasks of the array {array.name}: {state}; {others} before this one.", numbers)
