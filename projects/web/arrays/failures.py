"""Failed tasks on an array's page, with one line and one log per cause."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from django.db.models import QuerySet

from berth.core.wording.words import format_ranges
from projects.models import Phase, Pod, PodState, Workload, WorkloadArray
from projects.services.arrays import FailureGroup, failures_by_array

GROUPS_MAX = 5
INDEXES_MAX = 200  # maximum number of failed tasks whose indexes are listed
LINKS_MAX = 12  # maximum number of failed tasks per cause that are shown as links


@dataclass(frozen=True, slots=True)
class Failure:
    """Group of failed tasks.

    `task` is the first task, and `pod` is its first pod to fail, if any. `indexes` and `tasks` are empty if
    the group has too many tasks to list.
    """

    group: FailureGroup
    task: Workload
    pod: uuid.UUID | None
    indexes: str
    tasks: Sequence[tuple[int, uuid.UUID]] = ()

    @property
    def message(self) -> str:
        """The first task's message, or an empty string if it only repeats the cause."""
        return "" if self.group.cause in self.task.message else self.task.message


def load_failures(array: WorkloadArray) -> list[Failure]:
    """Return the largest groups of failed tasks, largest first."""
    groups = failures_by_array([array.pk]).get(array.pk, [])
    if not groups:
        return []
    failed = Workload.objects.filter(array=array, phase=Phase.FAILED, superseded=False)
    shown = failed.filter(array_index__in=[group.first for group in groups[:GROUPS_MAX]])
    firsts = {task.array_index: task for task in shown}
    pods = Pod.objects.filter(workload__in=firsts.values(), state=PodState.FAILED)
    ordered = pods.order_by("workload", "-run", "ended_at", "rank").distinct("workload")
    by_task = dict(ordered.values_list("workload", "pk"))
    by_cause = _tasks_by_cause(failed, groups)
    failures = []
    for group in groups[:GROUPS_MAX]:
        if (task := firsts.get(group.first)) is not None:
            tasks = sorted(by_cause.get((group.reason, group.exit_code), ()))
            indexes = format_ranges(index for index, _ in tasks) if tasks else ""
            links = tasks if len(tasks) <= LINKS_MAX else ()
            failures.append(Failure(group, task, by_task.get(task.pk), indexes, links))
    return failures


def _tasks_by_cause(
    failed: QuerySet[Workload], groups: Sequence[FailureGroup]
) -> dict[tuple[str, int | None], list[tuple[int, uuid.UUID]]]:
    """Return the indexes and IDs of all failed tasks, keyed by cause.

    Return an empty dict if there are too many failed tasks.
    """
    if sum(group.count for group in groups) > INDEXES_MAX:
        return {}
    by_cause: dict[tuple[str, int | None], list[tuple[int, uuid.UUID]]] = {}
    for reason, exit_code, index, pk in failed.order_by().values_list(
        "reason", "exit_code", "array_index", "pk"
    ):
        by_cause.setdefault((reason, exit_code), []).append((index or 0, pk))
    return by_cause
