"""Drop reservations that can no longer be fulfilled."""

import uuid
from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime

from berth.db.crash_points import crash_point
from berth.db.lease import fenced_transaction
from projects.models import Phase, Workload
from projects.models.workloads import ENDED_PHASES
from projects.services.workloads.moves import move
from scheduler.loop.commit.bind import ACTOR
from scheduler.loop.commit.bounds import exceeded_bound, total_request
from scheduler.loop.context import SchedulerContext
from scheduler.loop.observe.specs import SpecCache
from scheduler.models import Reservation

RESERVATION_EXPIRED = "The reserved resources did not become free in time."
NODE_UNAVAILABLE = "A node with reserved resources was removed or no longer accepts pods."
CLOSED_NODE_STATES = ("lost", "ended", "draining", "cordoned")


def drop_stale_reservations(now: datetime, context: SchedulerContext) -> int:
    """Drop reservations that can no longer be used. Return the number of affected workloads."""
    reserved = list(Reservation.objects.select_related("node__pool", "workload").order_by("pk"))
    if not reserved:
        return 0
    dropped = {
        row.workload_id: RESERVATION_EXPIRED
        for row in reserved
        if row.expires_at is not None and row.expires_at <= now
    }
    dropped |= {row.workload_id: NODE_UNAVAILABLE for row in reserved if row.node.state in CLOSED_NODE_STATES}
    dropped |= {row.workload_id: "" for row in reserved if row.workload.phase in ENDED_PHASES}
    with fenced_transaction(context.held_lease):
        rows = Workload.objects.select_for_update(of=("self",)).select_related("project__department")
        workloads = {
            row.pk: row for row in rows.filter(pk__in={row.workload_id for row in reserved}).order_by("pk")
        }
        for pk, why in _limit_conflicts(reserved, workloads.values(), context.specs).items():
            dropped.setdefault(pk, why)
        for pk in sorted(dropped):
            if pk in workloads:
                cancel_reservation(workloads[pk], "ReservationDropped", dropped[pk], now)
        crash_point("reservations.before_end")
    crash_point("reservations.done")
    return len(dropped)


def cancel_reservation(workload: Workload, reason: str, message: str, now: datetime, **data: object) -> None:
    """Delete all reservations of a workload and return the workload to pending. Its row must be locked."""
    Reservation.objects.filter(workload=workload).delete()
    if workload.phase == Phase.RESERVED:
        moved = move(
            workload,
            expected=[Phase.RESERVED],
            to=Phase.PENDING,
            reason=reason,
            message=message,
            actor=ACTOR,
            now=now,
            data=dict(data),
        )
        assert moved, "a locked row cannot leave its phase"
        workload.phase = Phase.PENDING


def _limit_conflicts(
    reserved: Iterable[Reservation], workloads: Iterable[Workload], specs: SpecCache
) -> dict[uuid.UUID, str]:
    """Return why workloads cannot start after an edit of a limit, quota or document, by workload id."""
    rows: dict[uuid.UUID, list[Reservation]] = defaultdict(list)
    for row in reserved:
        rows[row.workload_id].append(row)
    reasons: dict[uuid.UUID, str] = {}
    for workload in workloads:
        own_rows, spec = rows[workload.pk], specs.get(workload)
        if any(row.role not in spec.roles for row in own_rows):
            reasons[workload.pk] = "The stored document now has different roles."
            continue
        violation = exceeded_bound(workload, own_rows[0].node.pool, total_request(own_rows, spec))
        if violation:
            reasons[workload.pk] = f"The workload can no longer start: {violation}"
    return reasons
