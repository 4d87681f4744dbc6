"""Cancel, retry and delete arrays."""

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import F, QuerySet
from django.utils import timezone

from berth.core.errors import Conflict, NotFound
from berth.core.spec import parse_workload
from berth.core.spec.arrays import compress
from berth.db.crash_points import crash_point
from berth.db.wake import wake
from projects.access import Action, require, with_roles
from projects.actor import Actor
from projects.engine import lifecycle
from projects.models import ArrayState, Phase, Workload, WorkloadArray
from projects.services import announce, audit, events
from projects.services.arrays import progress
from projects.services.arrays.tasks import check_indexes, store_tasks
from projects.services.dependencies import refuse_if_awaited
from projects.services.workloads.control import record_leftovers
from projects.services.workloads.moves import Move, delete_reservations, move_all
from projects.services.workloads.submission import collect_warnings, prepare
from projects.services.workloads.submission_view import SubmissionView

SHOWN = 5
UNSTARTED = (Phase.PENDING, Phase.RESERVED, Phase.SUSPENDED)
LONG_COLUMNS = ("spec", "explanation", "pending_reasons")


def cancel(
    *,
    actor: Actor,
    array: WorkloadArray,
    indexes: Sequence[int] | None = None,
    dry_run: bool = False,
    now: datetime | None = None,
) -> int:
    """Cancel the array's live tasks, or only those with these indexes. Return their number.

    Tasks that have ended or are being cancelled stay unchanged. With `dry_run`, nothing is changed. Raises
    Invalid for an index that the array does not have.
    """
    require(actor, Action.OPERATE, array)
    at = now or timezone.now()
    with transaction.atomic():
        locked = _lock(array)
        rows = _tasks(locked, indexes).exclude(phase__in=lifecycle.ENDED)
        tasks = list(rows.select_for_update(of=("self",)).defer(*LONG_COLUMNS).order_by("pk"))
        stopping = [task for task in tasks if task.phase == Phase.STOPPING]
        turned = [task for task in stopping if task.next_phase not in lifecycle.ENDED]
        moved = [task for task in tasks if task.phase != Phase.STOPPING]
        count = len(turned) + len(moved)
        if dry_run or not count:
            return count
        message = f"Cancelled by {actor.name}."
        for task in tasks:
            task.project, task.array = locked.project, locked
        move_all([_cancel_move(task, message) for task in moved], actor=actor.name, now=at)
        crash_point("array.cancelled")
        _mark_cancelled(turned, message, actor)
        progress.release([locked.pk], at)
        progress.end([locked.pk], at)
        _audit(actor, "cancel", locked, count, [task.array_index for task in (*turned, *moved)])
        wake("scheduler")
    return count


def retry(
    *,
    actor: Actor,
    array: WorkloadArray,
    indexes: Sequence[int] | None = None,
    dry_run: bool = False,
    now: datetime | None = None,
) -> int:
    """Resubmit the array's failed tasks, or the tasks with these indexes. Return their number.

    A retried task is a new workload with the next attempt number. Its document is checked like a new one.
    With `dry_run`, nothing is stored. Raises Invalid for an index that the array does not have, and Conflict
    if a task has not ended or a name is in use.
    """
    require(actor, Action.OPERATE, array)
    at = now or timezone.now()
    with transaction.atomic():
        locked = _lock(array)
        rows = _tasks(locked, indexes)
        if indexes is None:
            rows = rows.filter(phase=Phase.FAILED)
        tasks = list(rows.order_by("array_index").values_list("pk", "array_index", "attempt", "phase"))
        _require_ended([(index, phase) for _, index, _, phase in tasks])
        if dry_run or not tasks:
            return len(tasks)
        view = SubmissionView(with_roles(actor), locks=True)
        spec = parse_workload(locked.spec)
        model = prepare(view, locked.spec, spec, project=locked.project, now=at, is_array=True)
        (warnings,) = collect_warnings(view, [model])
        _reopen(locked)
        Workload.objects.filter(pk__in=[pk for pk, *_ in tasks]).update(superseded=True)
        crash_point("array.superseded")
        attempts = {index: attempt + 1 for _, index, attempt, _ in tasks if index is not None}
        store_tasks(locked, model, attempts, actor, warnings)
        crash_point("array.stored")
        progress.release([locked.pk], at)
        _audit(actor, "retry", locked, len(tasks), attempts)
        wake("scheduler")
    return len(tasks)


def delete(*, actor: Actor, array: WorkloadArray) -> None:
    """Delete an ended array with all of its tasks, their logs and files. Events and evictions are kept.

    Raises Conflict while a task is live.
    """
    require(actor, Action.OPERATE, array)
    with transaction.atomic():
        locked = _lock(array)
        if locked.state == ArrayState.ACTIVE:
            raise Conflict("This array is active. Cancel it, and wait until its tasks have ended.")
        refuse_if_awaited(locked)
        tasks = Workload.objects.filter(array=locked)
        last = tasks.select_related("project__department").order_by("pk").last()
        events.record_all(
            events.build("deleted", task, f"Deleted by {actor.name}.", actor=actor.name)
            for task in tasks.only("pk", "name", "project_id").order_by("pk")
        )
        record_leftovers(tasks)
        _audit(actor, "delete", locked, tasks.count(), ())
        if last is not None:
            announce.workload_changed(last)
        tasks.delete()
        locked.delete()


def _lock(array: WorkloadArray) -> WorkloadArray:
    rows = WorkloadArray.objects.select_for_update(of=("self",), no_key=True)
    locked = rows.select_related("project__department").filter(pk=array.pk).first()
    if locked is None:
        raise NotFound("This array was deleted.")
    return locked


def _tasks(array: WorkloadArray, indexes: Sequence[int] | None) -> QuerySet[Workload]:
    """Return the last attempt of each task. Raises Invalid for an index that the array does not have."""
    rows = Workload.objects.filter(array=array, superseded=False)
    if indexes is None:
        return rows
    existing = rows.values_list("array_index", flat=True)
    check_indexes([index for index in existing if index is not None], indexes)
    return rows.filter(array_index__in=set(indexes))


def _cancel_move(task: Workload, message: str) -> Move:
    if task.phase in UNSTARTED:
        return Move(task, [task.phase], Phase.CANCELLED, "Cancelled", message, columns={"explanation": None})
    columns = {"next_phase": Phase.CANCELLED}
    return Move(task, [task.phase], Phase.STOPPING, "Cancelled", message, columns=columns)


def _mark_cancelled(tasks: Sequence[Workload], message: str, actor: Actor) -> None:
    """Mark locked tasks that are already stopping as cancelled."""
    if not tasks:
        return
    ids = [task.pk for task in tasks]
    Workload.objects.filter(pk__in=ids).update(
        next_phase=Phase.CANCELLED, reason="Cancelled", message=message, version=F("version") + 1
    )
    delete_reservations(ids)
    events.record_all(events.build("cancelled", task, message, actor=actor.name) for task in tasks)
    announce.workloads_changed(tasks)


def _require_ended(tasks: Sequence[tuple[int | None, str]]) -> None:
    live = [(index, phase) for index, phase in tasks if phase not in lifecycle.ENDED]
    if live:
        shown = ", ".join(f"{index} ({phase})" for index, phase in live[:SHOWN])
        more = f" and {len(live) - SHOWN} more" if len(live) > SHOWN else ""
        raise Conflict(f"Tasks {shown}{more} have not ended. Cancel them first, or exclude them.")


def _reopen(array: WorkloadArray) -> None:
    """Make a locked array active again.

    Raises Conflict if another live workload or active array has its name.
    """
    try:
        with transaction.atomic():
            WorkloadArray.objects.filter(pk=array.pk).update(
                state=ArrayState.ACTIVE, ended_at=None, unschedulable_at=None
            )
        live = Workload.objects.filter(project=array.project, name=array.name)
        if live.exclude(phase__in=lifecycle.ENDED).exists():
            raise Conflict(
                f"{array.project.name} has a live workload named {array.name}. Wait until it ends."
            )
    except IntegrityError:
        raise Conflict(
            f"{array.project.name} already has an active array named {array.name}. Wait until it ends."
        ) from None


def _audit(
    actor: Actor, action: str, array: WorkloadArray, count: int, indexes: Collection[int | None]
) -> None:
    after: dict[str, Any] = {"tasks": count}
    if indexes:
        after["indexes"] = compress(index for index in indexes if index is not None)
    audit.write_entry(actor, action, array, after=after, project=array.project)
