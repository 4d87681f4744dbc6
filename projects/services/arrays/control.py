"""Cancel, suspend, resume, retry and delete arrays."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from django.db import IntegrityError, transaction
from django.db.models import F
from django.utils import timezone

from berth.core.errors import Conflict
from berth.core.spec import parse_workload
from berth.db.loops.crash_points import crash_point
from berth.db.loops.wake import wake
from projects.access import Action, require
from projects.actor import Actor
from projects.engine import lifecycle
from projects.models import ArrayState, Phase, Workload, WorkloadArray
from projects.models.arrays import WAITING_REASON
from projects.services import announce, audit, events
from projects.services.arrays import progress
from projects.services.arrays.rows import audit_change, lock_array, select_tasks
from projects.services.arrays.tasks import store_tasks
from projects.services.code_fetches import copy_code, store_fetches
from projects.services.dependencies import reject_if_awaited
from projects.services.outputs import require_stored_changes
from projects.services.secrets import require_submitter_for_personal_secrets
from projects.services.workloads.control import lock_pods, record_leftovers
from projects.services.workloads.phase_transitions import PhaseTransition, change_phases, delete_reservations
from projects.services.workloads.submission import collect_warnings, prepare
from projects.services.workloads.submission_view import SubmissionView

SHOWN = 5
LONG_COLUMNS = ("spec", "explanation", "pending_reasons")


@dataclass(frozen=True, slots=True)
class _StopOperation:
    """Cancellation or suspension of tasks.

    `unstarted` contains the phases of tasks without pods. `stopped` contains the phases of the tasks to stop,
    or is None to stop all live tasks.
    """

    action: audit.AuditAction
    to: str
    reason: str
    unstarted: Sequence[str]
    stopped: Sequence[str] | None = None

    def would_change(self, task: Workload) -> bool:
        """Return whether the cancellation or suspension would change a live task."""
        if self.stopped is not None and task.phase not in self.stopped:
            return False
        if task.phase == Phase.STOPPING:
            return task.next_phase not in (*lifecycle.ENDED, self.to)
        return task.phase != self.to


CANCELLATION = _StopOperation(
    "cancel", Phase.CANCELLED, "Cancelled", (Phase.PENDING, Phase.RESERVED, Phase.SUSPENDED)
)
PENDING_CANCELLATION = replace(CANCELLATION, stopped=(Phase.PENDING, Phase.RESERVED))
SUSPENSION = _StopOperation("suspend", Phase.SUSPENDED, "Suspended", (Phase.PENDING, Phase.RESERVED))


def cancel(
    *,
    actor: Actor,
    array: WorkloadArray,
    indexes: Sequence[int] | None = None,
    pending_only: bool = False,
    dry_run: bool = False,
    now: datetime | None = None,
) -> int:
    """Cancel the array's live tasks, or only those in `indexes`.

    Return the number of cancelled tasks. With `pending_only`, tasks that have started or are suspended are
    not changed. With `dry_run`, no task is changed. Raises Invalid for an index that the array does not have.
    """
    stop = PENDING_CANCELLATION if pending_only else CANCELLATION
    return _stop_tasks(actor, array, stop, indexes, dry_run, now)


def suspend(
    *,
    actor: Actor,
    array: WorkloadArray,
    indexes: Sequence[int] | None = None,
    dry_run: bool = False,
    now: datetime | None = None,
) -> int:
    """Suspend the array's live tasks, or only those in `indexes`.

    Return the number of suspended tasks. Held tasks are released in place of the suspended tasks. With
    `dry_run`, no task is changed. Raises Invalid for an index that the array does not have.
    """
    return _stop_tasks(actor, array, SUSPENSION, indexes, dry_run, now)


def resume(
    *,
    actor: Actor,
    array: WorkloadArray,
    indexes: Sequence[int] | None = None,
    dry_run: bool = False,
    now: datetime | None = None,
) -> int:
    """Resume the array's suspended tasks, or only those in `indexes`.

    Return the number of resumed tasks. With `dry_run`, no task is changed. Raises Invalid for an index that
    the array does not have.
    """
    require(actor, Action.OPERATE, array)
    at = now or timezone.now()
    with transaction.atomic():
        locked = lock_array(array)
        tasks = _lock_tasks(locked, indexes)
        turned = [
            task for task in tasks if task.phase == Phase.STOPPING and task.next_phase == Phase.SUSPENDED
        ]
        moved = [task for task in tasks if task.phase == Phase.SUSPENDED]
        count = len(turned) + len(moved)
        if dry_run or not count:
            return count
        message = f"Resumed by {actor.name}."
        columns = {"backoff_until": None, "start_refusal": "", "held": True}
        change_phases(
            [
                PhaseTransition(
                    task, [Phase.SUSPENDED], Phase.PENDING, WAITING_REASON, message, columns=columns
                )
                for task in moved
            ],
            actor=actor.name,
            now=at,
        )
        crash_point("array.resumed")
        _write_transition(
            turned, "resumed", f"Resumed by {actor.name} while stopping.", actor, next_phase=Phase.PENDING
        )
        progress.release_held_tasks([locked.pk], at)
        audit_change(actor, "resume", locked, count, [task.array_index for task in (*turned, *moved)])
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
    """Resubmit the array's failed tasks, or the tasks in `indexes`.

    Return the number of retried tasks. Each is a new workload with the next attempt number. With `dry_run`,
    no task is stored. Raises Invalid for an index that the array does not have, and Conflict if a task has
    not ended or a name is in use.
    """
    require(actor, Action.OPERATE, array)
    at = now or timezone.now()
    with transaction.atomic():
        locked = lock_array(array)
        rows = select_tasks(locked, indexes)
        if indexes is None:
            rows = rows.filter(phase=Phase.FAILED)
        tasks = list(rows.order_by("array_index").values_list("pk", "array_index", "attempt", "phase"))
        _require_ended([(index, phase) for _, index, _, phase in tasks])
        if dry_run or not tasks:
            return len(tasks)
        view = SubmissionView(actor, locks=True)
        spec = parse_workload(locked.spec)
        require_submitter_for_personal_secrets(actor, [spec], locked.submitted_by_id)
        model = prepare(view, locked.spec, spec, project=locked.project, now=at, is_array=True)
        _reuse_commit(locked, model.workload)
        store_fetches([model.workload])
        (warnings,) = collect_warnings(view, [model])
        _reactivate(locked)
        Workload.objects.filter(pk__in=[pk for pk, *_ in tasks]).update(superseded=True)
        crash_point("array.superseded")
        attempts = {index: attempt + 1 for _, index, attempt, _ in tasks if index is not None}
        store_tasks(locked, model, attempts, actor, warnings)
        crash_point("array.stored")
        progress.release_held_tasks([locked.pk], at)
        audit_change(actor, "retry", locked, len(tasks), attempts)
        wake("scheduler")
    return len(tasks)


def _reuse_commit(array: WorkloadArray, model: Workload) -> None:
    """Give retried tasks the same commit as the array's other tasks, if it is still stored."""
    if model.code_fetch_id is not None:
        stored = Workload.objects.filter(array=array, code__isnull=False, code_fetch__isnull=False)
        first = stored.select_related("code").order_by("pk").first()
        if first is not None:
            copy_code(model, first)


def delete(*, actor: Actor, array: WorkloadArray) -> None:
    """Delete an ended array with all of its tasks, their logs and files.

    Raises Conflict while a task is live, another workload depends on the array, or changes to S3 volumes are
    not stored yet.
    """
    require(actor, Action.OPERATE, array)
    with transaction.atomic():
        locked = lock_array(array)
        if locked.state == ArrayState.ACTIVE:
            raise Conflict("This array is active. Cancel it, and wait until its tasks have ended.")
        reject_if_awaited(locked)
        tasks = Workload.objects.filter(array=locked)
        last = tasks.select_related("project__department").order_by("pk").last()
        events.record_all(
            events.build("deleted", task, f"Deleted by {actor.name}.", actor=actor.name)
            for task in tasks.only("pk", "name", "project_id").order_by("pk")
        )
        require_stored_changes(tasks)
        record_leftovers(tasks)
        lock_pods(tasks)
        audit_change(actor, "delete", locked, tasks.count(), ())
        if last is not None:
            announce.workload_changed(last)
        tasks.delete()
        locked.delete()


def _stop_tasks(
    actor: Actor,
    array: WorkloadArray,
    stop: _StopOperation,
    indexes: Sequence[int] | None,
    dry_run: bool,
    now: datetime | None,
) -> int:
    require(actor, Action.OPERATE, array)
    at = now or timezone.now()
    with transaction.atomic():
        locked = lock_array(array)
        tasks = [task for task in _lock_tasks(locked, indexes) if stop.would_change(task)]
        if dry_run or not tasks:
            return len(tasks)
        message = f"{stop.reason} by {actor.name}."
        turned = [task for task in tasks if task.phase == Phase.STOPPING]
        moved = [task for task in tasks if task.phase != Phase.STOPPING]
        change_phases([_stop_transition(task, stop, message) for task in moved], actor=actor.name, now=at)
        crash_point(f"array.{stop.reason.lower()}")
        _write_transition(turned, stop.reason.lower(), message, actor, next_phase=stop.to, reason=stop.reason)
        progress.release_held_tasks([locked.pk], at)
        progress.end_finished_arrays([locked.pk], at)
        audit_change(actor, stop.action, locked, len(tasks), [task.array_index for task in (*turned, *moved)])
        wake("scheduler")
    return len(tasks)


def _lock_tasks(array: WorkloadArray, indexes: Sequence[int] | None) -> list[Workload]:
    """Lock the live tasks of a locked array. Raises Invalid for an index that the array does not have."""
    rows = select_tasks(array, indexes).exclude(phase__in=lifecycle.ENDED)
    tasks = list(rows.select_for_update(of=("self",)).defer(*LONG_COLUMNS).order_by("pk"))
    for task in tasks:
        task.project, task.array = array.project, array
    return tasks


def _stop_transition(task: Workload, stop: _StopOperation, message: str) -> PhaseTransition:
    if task.phase in stop.unstarted:
        return PhaseTransition(
            task, [task.phase], stop.to, stop.reason, message, columns={"explanation": None}
        )
    columns = {"next_phase": stop.to}
    return PhaseTransition(task, [task.phase], Phase.STOPPING, stop.reason, message, columns=columns)


def _write_transition(
    tasks: Sequence[Workload], kind: str, message: str, actor: Actor, **columns: str
) -> None:
    """Change the next phase of locked tasks that are already stopping, and record an event for each."""
    if not tasks:
        return
    ids = [task.pk for task in tasks]
    values = {**columns, "message": message} if "reason" in columns else columns
    Workload.objects.filter(pk__in=ids).update(version=F("version") + 1, **values)
    delete_reservations(ids)
    events.record_all(events.build(kind, task, message, actor=actor.name) for task in tasks)
    announce.workloads_changed(tasks)


def _require_ended(tasks: Sequence[tuple[int | None, str]]) -> None:
    live = [(index, phase) for index, phase in tasks if phase not in lifecycle.ENDED]
    if live:
        shown = ", ".join(f"{index} ({phase})" for index, phase in live[:SHOWN])
        more = f" and {len(live) - SHOWN} more" if len(live) > SHOWN else ""
        tasks_have = f"Task {shown} has" if len(live) == 1 else f"Tasks {shown}{more} have"
        raise Conflict(f"{tasks_have} not ended. Cancel or exclude unfinished tasks.")


def _reactivate(array: WorkloadArray) -> None:
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
                f"{array.project.name} has a live workload named {array.name}. Cancel the workload, or wait "
                "until it ends."
            )
    except IntegrityError:
        raise Conflict(
            f"{array.project.name} already has an active array named {array.name}. Cancel the array, or "
            "wait until it ends."
        ) from None
