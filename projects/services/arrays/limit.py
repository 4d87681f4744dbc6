"""Change how many tasks of an array may run at the same time."""

from datetime import datetime

from django.db import transaction
from django.utils import timezone

from berth.core.errors import Conflict
from berth.db.loops.wake import wake
from projects.access import Action, require
from projects.actor import Actor
from projects.models import ArrayState, Workload, WorkloadArray
from projects.services import announce, audit
from projects.services.arrays import progress
from projects.services.arrays.rows import lock_array


def set_max_running(
    *, actor: Actor, array: WorkloadArray, max_running: int | None, now: datetime | None = None
) -> WorkloadArray:
    """Set the maximum number of tasks that use resources at the same time, or None for no maximum.

    Running tasks continue. Idempotent. Raises Conflict if the array has ended.
    """
    require(actor, Action.OPERATE, array)
    at = now or timezone.now()
    with transaction.atomic():
        locked = lock_array(array)
        if locked.state != ArrayState.ACTIVE:
            raise Conflict(f"This array has ended ({locked.state}). Submit a new one.")
        if locked.max_running == max_running:
            return locked
        before, locked.max_running = locked.max_running, max_running
        section = {key: value for key, value in locked.spec["array"].items() if key != "max_running"}
        if max_running is not None:
            section["max_running"] = max_running
        locked.spec = {**locked.spec, "array": section}
        locked.save(update_fields=["max_running", "spec"])
        progress.hold_excess_tasks(locked.pk, at)
        progress.release_held_tasks([locked.pk], at)
        audit.write_entry(
            actor, "edit", locked, before={"max_running": before}, after={"max_running": max_running},
            project=locked.project,
        )  # fmt: skip
        task = Workload.objects.filter(array=locked).select_related("project__department").first()
        if task is not None:
            announce.workload_changed(task)
        wake("scheduler")
    return locked
