"""Release reservations that can no longer be kept."""

import uuid
from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime

from berth.db.lease import fenced
from projects.models import Phase, Workload
from projects.models.workloads import ENDED_PHASES
from projects.services.workloads.moves import move
from scheduler.commit.bind import ACTOR
from scheduler.commit.bounds import asked_for, passed_bound
from scheduler.models import Reservation
from scheduler.points import point
from scheduler.post import Post
from scheduler.specs import Specs

LATE = "The room promised to it did not become free in time."
HOMELESS = "A node on which room was promised to it is gone, or takes nothing new."
CLOSED = ("lost", "ended", "draining", "cordoned")


def drop_dead_promises(now: datetime, post: Post) -> int:
    """Returns how many workloads lost theirs. Locks nothing while nothing is promised."""
    promised = list(Reservation.objects.select_related("node__pool", "workload").order_by("pk"))
    if not promised:
        return 0
    dead = {row.workload_id: LATE for row in promised if row.expires_at is not None and row.expires_at <= now}
    dead |= {row.workload_id: HOMELESS for row in promised if row.node.state in CLOSED}
    dead |= {row.workload_id: "" for row in promised if row.workload.phase in ENDED_PHASES}
    with fenced(post.held):
        rows = Workload.objects.select_for_update(of=("self",)).select_related("project__department")
        found = {
            row.pk: row for row in rows.filter(pk__in={row.workload_id for row in promised}).order_by("pk")
        }
        for pk, why in _outvoted(promised, found.values(), post.specs).items():
            dead.setdefault(pk, why)
        for pk in sorted(dead):
            if pk in found:
                unpromise(found[pk], "PromiseDropped", dead[pk], now)
        point("promises.before_end")
    point("promises.done")
    return len(dead)


def unpromise(workload: Workload, reason: str, message: str, now: datetime, **data: object) -> None:
    """All of its promises, at once. The row is locked."""
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
        assert moved, "the row is locked"
        workload.phase = Phase.PENDING


def _outvoted(
    promised: Iterable[Reservation], workloads: Iterable[Workload], specs: Specs
) -> dict[uuid.UUID, str]:
    """Those that limits or quotas, edited since, no longer allow to start."""
    rows: dict[uuid.UUID, list[Reservation]] = defaultdict(list)
    for row in promised:
        rows[row.workload_id].append(row)
    found: dict[uuid.UUID, str] = {}
    for workload in workloads:
        mine, meaning = rows[workload.pk], specs.of(workload)
        if any(row.role not in meaning.roles for row in mine):
            found[workload.pk] = "Its document names other roles now."
            continue
        bound_by = passed_bound(workload, mine[0].node.pool, asked_for(mine, meaning))
        if bound_by:
            found[workload.pk] = f"It may not start any more: {bound_by}"
    return found
