"""Drop reservations that can no longer be fulfilled."""

import logging
import uuid
from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime

from berth.db.loops.crash_points import crash_point
from berth.db.loops.lease import fenced_transaction
from berth.db.queries.compiled import compiled_once
from berth.db.writes.bulk_rows import load_related_objects
from berth.db.writes.set_writes import write_with_bisection
from pools.models import Node
from projects.models import Phase, Workload
from projects.models.workloads import ENDED_PHASES
from projects.services.workloads.phase_transitions import PhaseTransition, change_phases, delete_reservations
from scheduler.loop.commit.bind import ACTOR
from scheduler.loop.commit.bounds import QueueBounds, total_reserved_amounts
from scheduler.loop.context import SchedulerContext
from scheduler.loop.observe.specs import SpecCache
from scheduler.loop.queries import PROJECTS
from scheduler.models import Reservation

log = logging.getLogger(__name__)

RESERVATION_EXPIRED = "The reserved resources did not become free in time."
NODE_UNAVAILABLE = "A node with reserved resources was removed or no longer accepts pods."
CLOSED_NODE_STATES = ("lost", "ended", "draining", "cordoned")
RESERVATIONS = compiled_once(lambda: Reservation.objects.order_by("pk"))
# Do not join with the reservations, because the database would then read all workloads, even ended ones.
WORKLOADS = compiled_once(
    lambda keys: Workload.objects.filter(pk__any=keys).defer("labels", "explanation", "pending_reasons")
)
NODES = compiled_once(lambda keys: Node.objects.filter(pk__any=keys).select_related("pool"))


def drop_stale_reservations(now: datetime, context: SchedulerContext) -> int:
    """Drop reservations that can no longer be used. Return the number of affected workloads."""
    reserved = list(RESERVATIONS())
    context.has_reservations = bool(reserved)
    if not reserved:
        return 0
    load_related_objects(reserved, "workload", WORKLOADS)
    load_related_objects(reserved, "node", NODES)
    owners = {row.workload_id: row.workload for row in reserved}
    load_related_objects([*owners.values()], "project", PROJECTS)
    dropped = _limit_conflicts(reserved, owners.values(), context.specs)
    dropped |= {
        row.workload_id: RESERVATION_EXPIRED
        for row in reserved
        if row.expires_at is not None and row.expires_at <= now
    }
    dropped |= {row.workload_id: NODE_UNAVAILABLE for row in reserved if row.node.state in CLOSED_NODE_STATES}
    dropped |= {row.workload_id: "" for row in reserved if row.workload.phase in ENDED_PHASES}
    if not dropped:
        return 0
    with fenced_transaction(context.held_lease):
        rows = Workload.objects.select_for_update(of=("self",)).select_related("project__department")
        stale = [(row, dropped[row.pk]) for row in rows.filter(pk__in=dropped).order_by("pk")]
        rejected = write_with_bisection(stale, lambda part: _cancel_reservations(part, now))
        crash_point("reservations.before_end")
    crash_point("reservations.done")
    for (workload, _), reason in rejected:
        log.error("the reservation of %s could not be dropped: %s", workload.pk, reason)
    return len(dropped) - len(rejected)


def _cancel_reservations(stale: Sequence[tuple[Workload, str]], now: datetime) -> None:
    """Delete the reservations of locked workloads. Workloads without pods become pending again."""
    delete_reservations([workload.pk for workload, _ in stale])
    transitions = [
        PhaseTransition(workload, [Phase.RESERVED], Phase.PENDING, "ReservationDropped", message)
        for workload, message in stale
        if workload.phase == Phase.RESERVED
    ]
    made = change_phases(transitions, actor=ACTOR, now=now)
    assert len(made) == len(transitions), "a locked row cannot leave its phase"


def _limit_conflicts(
    reserved: Iterable[Reservation], workloads: Iterable[Workload], specs: SpecCache
) -> dict[uuid.UUID, str]:
    """Return the reasons why workloads can no longer start after an edit of a limit, a quota or their
    document, keyed by workload ID.
    """
    rows: dict[uuid.UUID, list[Reservation]] = defaultdict(list)
    for row in reserved:
        rows[row.workload_id].append(row)
    reasons: dict[uuid.UUID, str] = {}
    bounds = QueueBounds.read_current()
    for workload in workloads:
        own_rows, spec = rows[workload.pk], specs.get(workload)
        if any(row.role not in spec.roles for row in own_rows):
            reasons[workload.pk] = "The stored document now has different roles."
            continue
        violation = bounds.describe_exceeded_bound(
            workload, own_rows[0].node.pool, total_reserved_amounts(own_rows, spec)
        )
        if violation:
            reasons[workload.pk] = f"The workload can no longer start: {violation}"
    return reasons
