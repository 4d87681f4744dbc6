"""Here a workload changes its state: one door, by compare-and-set, one event for each move."""
from collections.abc import Collection
from datetime import datetime
from typing import Any

from django.db import transaction
from django.db.models import F

from projects.engine import lifecycle
from projects.models import Phase, Workload
from projects.services import announce, events


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
    **columns: Any,
) -> bool:
    """True if the workload stood in one of `expected` and now stands in `to`; False changes nothing.

    `columns` are written in the same statement. `expected` states from which the table allows no move
    to `to` are a mistake in the caller.
    """
    for frm in expected:
        assert lifecycle.allowed(frm, to), f"no move from {frm} to {to}"
    if to in lifecycle.ENDED:
        columns.setdefault("ended_at", now)
    if to != Phase.STOPPING:
        columns.setdefault("next_phase", "")
    with transaction.atomic(savepoint=False):
        changed = Workload.objects.filter(pk=workload.pk, phase__in=list(expected)).update(
            phase=to, reason=reason, message=message, since=now, version=F("version") + 1, **columns
        )
        if not changed:
            return False
        events.record(
            str(to), workload, message or reason, actor=actor, data={"reason": reason, **(data or {})}
        )
        announce.workload_changed(workload)
    return True
