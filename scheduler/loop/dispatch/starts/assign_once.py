"""Record a pod's network assignments once per attempt, before the pod starts."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

from berth.db.loops.crash_points import assert_no_transaction, crash_point
from berth.db.loops.lease import fenced_transaction
from berth.db.writes.moves import RowChange, lock_keys
from berth.db.writes.set_writes import write_changes
from projects.models import Pod
from projects.models.workloads import LIVE_POD_STATES
from scheduler.loop.context import SchedulerContext

Assignment = Mapping[str, Any] | None


def assign_missing_values(
    column: Literal["endpoint", "ports"],
    pods: Iterable[Pod],
    find: Callable[[Pod], Assignment],
    context: SchedulerContext,
) -> None:
    """Set `column` for pods that have no value yet.

    `find` looks up a pod's value, and returns None if none is available yet.
    """
    assert_no_transaction()
    pending = [pod for pod in pods if getattr(pod, column) is None]
    assignments = {pod.pk: value for pod in pending if (value := find(pod)) is not None}
    if not assignments:
        return
    unassigned = Pod.objects.filter(pk__in=assignments, **{f"{column}__isnull": True})
    with fenced_transaction(context.held_lease):
        changes = [RowChange(pk, LIVE_POD_STATES, {column: assignments[pk]}) for pk in lock_keys(unassigned)]
        write_changes(Pod, "state", changes)
    crash_point("dispatch.assigned")
    stored = dict(Pod.objects.filter(pk__in=assignments).values_list("pk", column))
    for pod in pending:
        setattr(pod, column, stored.get(pod.pk))
