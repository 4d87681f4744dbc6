"""Change a workload's state: compare-and-set with one event per move."""

from collections.abc import Collection
from datetime import datetime
from typing import Any

from django.db import transaction
from django.db.models import F

from projects.engine import lifecycle
from projects.models import Phase, Workload
from projects.services import announce, events
from projects.services.notifications import deliveries
from projects.services.workloads import wait_reasons

MAY_HOLD_PROMISES = frozenset({Phase.PENDING, Phase.RESERVED, Phase.STARTING, Phase.RUNNING})


def move(
    workload: Workload,
    *,
    expected: Collection[str],
    to: str,
    reason: str,
    message: str,
    actor: str,
    now: datetime,
    data: dict[str, Any] | None = None,
    keeps_promises: bool = False,
    **columns: Any,
) -> bool:
    """True if the workload stood in one of `expected` and now stands in `to`; False changes nothing.

    `columns` are written in the same statement. Who stops, is suspended or has ended is promised nothing
    any more (a promise for growth must not outlive the run it was made to), unless it `keeps_promises`, for
    it only moves to the place that it was promised. `expected` states from which the table allows no move
    to `to` are a mistake in the caller.
    """
    for frm in expected:
        assert lifecycle.allowed(frm, to), f"no move from {frm} to {to}"
    if to in lifecycle.ENDED:
        columns.setdefault("ended_at", now)
    if to != Phase.PENDING and Phase.PENDING in expected:
        columns["wait_reasons"] = wait_reasons.ended(now)
    if to != Phase.STOPPING:
        columns.setdefault("next_phase", "")
    with transaction.atomic(savepoint=False):
        changed = Workload.objects.filter(pk=workload.pk, phase__in=list(expected)).update(
            phase=to, reason=reason, message=message, since=now, version=F("version") + 1, **columns
        )
        if not changed:
            return False
        if to not in MAY_HOLD_PROMISES and not keeps_promises:
            workload.reservations.all().delete()
        events.record(
            str(to), workload, message or reason, actor=actor, data={"reason": reason, **(data or {})}
        )
        deliveries.remember(workload, to=to, reason=reason, message=message, now=now)
        announce.workload_changed(workload)
    return True
