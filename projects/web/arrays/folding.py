"""Collapse rows of array tasks that have the same state and reason."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, cast

from projects.models import Phase, Workload

FOLDED_MIN = 5  # minimum number of identical tasks to fold, not counting the first
FOLDED_PHASES = (Phase.PENDING, Phase.COMPLETED, Phase.FAILED, Phase.CANCELLED, Phase.SUSPENDED)


@dataclass(frozen=True, slots=True)
class FoldedTasks:
    """Tasks that follow a row and share its state and reason."""

    count: int
    first: Workload
    last: Workload


def fold_tasks(tasks: Sequence[Workload], *, fold: bool) -> None:
    """Mark the tasks to collapse, and add a summary of them to the preceding row."""
    for task in tasks:
        cast("Any", task).is_folded, cast("Any", task).folded_tasks = False, None
    for _, series in groupby(tasks, _folding_key) if fold else ():
        first, *others = series
        if len(others) < FOLDED_MIN:
            continue
        for task in others:
            cast("Any", task).is_folded = True
        cast("Any", first).folded_tasks = FoldedTasks(len(others), others[0], others[-1])


def _folding_key(task: Workload) -> tuple[object, ...]:
    if task.phase not in FOLDED_PHASES:
        return (task.pk,)
    return task.phase, task.held, task.reason, task.exit_code
