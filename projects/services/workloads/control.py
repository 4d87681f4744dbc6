"""Cancel, suspend, resume and delete workloads."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

from django.db import transaction
from django.db.models import F
from django.utils import timezone

from berth.core.errors import Conflict, Forbidden, NotFound
from berth.db.loops.wake import wake
from projects.access import Action, require
from projects.actor import Actor
from projects.engine import lifecycle
from projects.models import Leftover, Phase, Pod, Workload
from projects.models.arrays import WAITING_REASON
from projects.services import announce, audit, events
from projects.services.dependencies import reject_if_awaited
from projects.services.inference import services
from projects.services.outputs import require_stored_changes
from projects.services.workloads.phase_transitions import change_phase


def cancel(*, actor: Actor, workload: Workload, now: datetime | None = None) -> Workload:
    """Cancel a workload. A running workload ends once its pods have stopped. Idempotent."""
    return _cancel_or_suspend(actor, workload, to=Phase.CANCELLED, reason="Cancelled", now=now)


def suspend(*, actor: Actor, workload: Workload, now: datetime | None = None) -> Workload:
    """Stop a workload until it is resumed. The submission time does not change. Idempotent."""
    return _cancel_or_suspend(actor, workload, to=Phase.SUSPENDED, reason="Suspended", now=now)


def resume(*, actor: Actor, workload: Workload, now: datetime | None = None) -> Workload:
    require(actor, Action.OPERATE, workload)
    at = now or timezone.now()
    with transaction.atomic():
        locked = lock_workload(workload)
        if locked.phase == Phase.SUSPENDED:
            is_task = locked.array_id is not None
            moved = change_phase(
                locked,
                expected=[Phase.SUSPENDED],
                to=Phase.PENDING,
                reason=WAITING_REASON if is_task else "Resumed",
                message=f"Resumed by {actor.name}.",
                actor=actor.name,
                now=at,
                backoff_until=None,
                start_refusal="",
                held=is_task,  # a resumed task competes again with the array's other tasks
            )
            assert moved, "the phase of a locked workload cannot change"
        elif locked.phase == Phase.STOPPING and locked.next_phase == Phase.SUSPENDED:
            _update_and_bump_version(locked, next_phase=Phase.PENDING)
            events.record("resumed", locked, f"Resumed by {actor.name} while stopping.", actor=actor.name)
            announce.workload_changed(locked)
        elif locked.phase in lifecycle.ENDED:
            raise Conflict(f"This workload has ended ({locked.phase}). Resubmit it.")
        else:
            return locked
        _audit(actor, "resume", locked, after=(fresh := reload_workload(workload)))
        wake("scheduler")
    return fresh


def delete(*, actor: Actor, workload: Workload) -> None:
    """Delete an ended workload with its logs and files.

    Raises Conflict if the workload has not ended or is still needed, for example by a dependent workload.
    """
    require(actor, Action.OPERATE, workload)
    with transaction.atomic():
        locked = lock_workload(workload)
        if locked.phase not in lifecycle.ENDED:
            raise Conflict(f"This workload is {locked.phase}. Cancel the workload before you delete it.")
        services.require_no_live_engines(locked)
        reject_if_awaited(locked)
        require_stored_changes([locked])
        events.record("deleted", locked, f"Deleted by {actor.name}.", actor=actor.name)
        _audit(actor, "delete", locked)
        announce.workload_changed(locked)
        record_leftovers([locked])
        lock_pods([locked])
        locked.delete()


@dataclass
class BulkChange:
    """Outcome of a change to several workloads. Each is changed or rejected on its own."""

    changed: list[Workload] = field(default_factory=list)
    rejected: list[tuple[Workload, str]] = field(default_factory=list)


class WorkloadOperation(Protocol):
    """Operation on one workload, such as `cancel`."""

    def __call__(self, *, actor: Actor, workload: Workload) -> Workload: ...


def bulk_change(*, actor: Actor, workloads: Iterable[Workload], change: WorkloadOperation) -> BulkChange:
    """Change workloads one by one, each in its own transaction."""
    outcome = BulkChange()
    for workload in workloads:
        try:
            outcome.changed.append(change(actor=actor, workload=workload))
        except (Conflict, Forbidden, NotFound) as rejection:
            outcome.rejected.append((workload, rejection.detail))
    return outcome


def _cancel_or_suspend(
    actor: Actor, workload: Workload, *, to: str, reason: str, now: datetime | None
) -> Workload:
    require(actor, Action.OPERATE, workload)
    at = now or timezone.now()
    message = f"{reason} by {actor.name}."
    with transaction.atomic():
        locked = lock_workload(workload)
        if locked.phase == to or (locked.phase == Phase.STOPPING and locked.next_phase == to):
            return locked
        if locked.phase in lifecycle.ENDED:
            raise Conflict(f"This workload has already ended ({locked.phase}).")
        if locked.phase == Phase.STOPPING:
            _change_next_phase(locked, to, reason, message, actor)
        elif locked.phase in (Phase.STARTING, Phase.RUNNING):
            change_phase(
                locked,
                expected=[locked.phase],
                to=Phase.STOPPING,
                next_phase=to,
                reason=reason,
                message=message,
                actor=actor.name,
                now=at,
            )
        else:
            change_phase(
                locked,
                expected=[locked.phase],
                to=to,
                reason=reason,
                message=message,
                actor=actor.name,
                now=at,
                explanation=None,
            )
        action: audit.AuditAction = "cancel" if to == Phase.CANCELLED else "suspend"
        _audit(actor, action, locked, after=(fresh := reload_workload(workload)))
        wake("scheduler")
    return fresh


def _change_next_phase(locked: Workload, to: str, reason: str, message: str, actor: Actor) -> None:
    """Change the next phase of a workload that is already stopping.

    Cancellation takes precedence over suspension.
    """
    if locked.next_phase in lifecycle.ENDED:
        raise Conflict(f"This workload is already stopping and will be {locked.next_phase}.")
    _update_and_bump_version(locked, next_phase=to, reason=reason, message=message)
    locked.reservations.all().delete()
    events.record(reason.lower(), locked, message, actor=actor.name)
    announce.workload_changed(locked)


def _update_and_bump_version(locked: Workload, **columns: Any) -> None:
    """Update the workload's columns and increment its version, so that decisions based on the old version are
    rechecked.
    """
    Workload.objects.filter(pk=locked.pk).update(version=F("version") + 1, **columns)


def lock_workload(workload: Workload) -> Workload:
    """Return the locked row. Raises NotFound if the workload was deleted."""
    fresh = (
        Workload.objects.select_for_update(of=("self",))
        .select_related("project__department")
        .filter(pk=workload.pk)
        .first()
    )
    if fresh is None:
        raise NotFound("This workload has been deleted.")
    return fresh


def reload_workload(workload: Workload) -> Workload:
    """Return the workload's current row, with the related rows that API responses need."""
    return Workload.objects.select_related("project__department", "submitted_by", "pool").get(pk=workload.pk)


def _audit(
    actor: Actor, action: audit.AuditAction, workload: Workload, after: Workload | None = None
) -> None:
    before = {"phase": workload.phase}
    phase = None if after is None else {"phase": after.phase}
    audit.write_entry(actor, action, workload, before=before, after=phase, project=workload.project)


def lock_pods(workloads: Iterable[Workload]) -> None:
    """Lock the pods of workloads that are about to be deleted, so that a concurrent measurement cannot make
    the deletion fail.
    """
    rows = Pod.objects.select_for_update().filter(workload__in=workloads)
    list(rows.order_by("pk").values_list("pk", flat=True))


def record_leftovers(workloads: Iterable[Workload]) -> None:
    """Record the files that deleted workloads leave on nodes, for later cleanup."""
    pods = Pod.objects.filter(workload__in=workloads).order_by("pk")
    places = list(pods.values_list("pk", "workload_id", "node__pool_id"))
    rows = [Leftover(pool_id=pool, kind=Leftover.Kind.POD, name=str(pk)) for pk, _, pool in places]
    rows += [
        Leftover(pool_id=pool, kind=Leftover.Kind.WORKSPACE, name=str(workload))
        for pool, workload in sorted({(pool, workload) for _, workload, pool in places})
    ]
    Leftover.objects.bulk_create(rows)
