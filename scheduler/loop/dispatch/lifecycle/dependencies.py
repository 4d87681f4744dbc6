"""Cancel workloads whose dependencies can no longer be met."""

import uuid
from collections.abc import Collection
from datetime import datetime

from berth.core.spec import SpecError, parse_workload
from berth.db.loops.crash_points import crash_point
from berth.db.loops.lease import fenced_transaction
from projects.models import Phase, Workload
from projects.services.arrays.progress import lock_task_arrays
from projects.services.dependencies import (
    find_newest_objects,
    resolve_dependencies,
    unmeetable_dependency_message,
)
from projects.services.workloads.phase_transitions import PhaseTransition, change_phases
from scheduler.loop.context import SchedulerContext
from scheduler.loop.observe.dependencies import CANCELLABLE

ACTOR = "scheduler"
REASON = "DependencyNeverMet"


def cancel_dependents(workloads: Collection[uuid.UUID], now: datetime, context: SchedulerContext) -> int:
    """Cancel the workloads whose dependencies still cannot be met.

    Return the number of cancelled workloads.
    """
    with fenced_transaction(context.held_lease):
        lock_task_arrays(workloads)
        rows = Workload.objects.select_for_update(of=("self",)).select_related("project__department")
        locked = list(rows.filter(pk__in=workloads, phase__in=CANCELLABLE, run=0).order_by("pk"))
        transitions = [
            PhaseTransition(row, [row.phase], Phase.CANCELLED, REASON, message, columns={"explanation": None})
            # Checked again under locks, because a user may have edited `after`.
            for row, message in _workloads_with_unmeetable_dependencies(locked)
        ]
        cancelled = change_phases(transitions, actor=ACTOR, now=now) if transitions else []
        crash_point("dependencies.cancelled")
    return len(cancelled)


def _workloads_with_unmeetable_dependencies(rows: Collection[Workload]) -> list[tuple[Workload, str]]:
    dependencies = []
    for row in rows:
        try:
            dependencies.append((row, parse_workload(row.spec).after))
        except SpecError:  # unreadable workloads are reported as misconfigured
            continue
    newest = find_newest_objects(
        {entry.workload_reference(row.project.name) for row, entries in dependencies for entry in entries}
    )
    messages = [
        (
            row,
            unmeetable_dependency_message(
                row.project.name, resolve_dependencies(row.project.name, entries, newest)
            ),
        )
        for row, entries in dependencies
    ]
    return [(row, message) for row, message in messages if message is not None]
