"""Change a workload's phase by compare-and-set, recording one event per change."""

from collections.abc import Collection
from datetime import datetime
from typing import Any

from django.db import transaction
from django.db.models import F, JSONField
from django.db.models.expressions import RawSQL

from projects.engine import lifecycle
from projects.models import Phase, Workload
from projects.services import announce, events
from projects.services.notifications import deliveries

RESERVABLE = frozenset({Phase.PENDING, Phase.RESERVED, Phase.STARTING, Phase.RUNNING})


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
    keep_reservations: bool = False,
    **columns: Any,
) -> bool:
    """Move the workload from one of the `expected` phases to `to`. Return False if it is in another phase.

    `columns` are written in the same statement. When a workload stops, is suspended or ends, its
    reservations are deleted, because reservations for scaling up must not outlive the run.
    `keep_reservations` is for a workload that stops only to restart on its reserved nodes. The
    caller must not pass `expected` phases from which `lifecycle` does not allow the move.
    """
    for source in expected:
        assert lifecycle.is_move_allowed(source, to), f"transition from {source} to {to} is not allowed"
    if to in lifecycle.ENDED:
        columns.setdefault("ended_at", now)
    if to != Phase.PENDING and Phase.PENDING in expected:
        columns["pending_reasons"] = _close_last_reason(now)
    if to != Phase.STOPPING:
        columns.setdefault("next_phase", "")
    with transaction.atomic(savepoint=False):
        changed = Workload.objects.filter(pk=workload.pk, phase__in=list(expected)).update(
            phase=to, reason=reason, message=message, since=now, version=F("version") + 1, **columns
        )
        if not changed:
            return False
        if to not in RESERVABLE and not keep_reservations:
            workload.reservations.all().delete()
        events.record(
            str(to), workload, message or reason, actor=actor, data={"reason": reason, **(data or {})}
        )
        deliveries.enqueue(workload, to=to, reason=reason, message=message, now=now)
        announce.workload_changed(workload)
    return True


CLOSE_LAST_REASON = """
    CASE WHEN pending_reasons #>> '{-1,until}' IS NULL
         THEN jsonb_set(pending_reasons, '{-1,until}', to_jsonb(%s::timestamptz))
         ELSE pending_reasons END
"""


def _close_last_reason(now: datetime) -> RawSQL:
    """Return an expression that closes the last pending reason in `pending_reasons`, if it is open."""
    return RawSQL(CLOSE_LAST_REASON, (now,), output_field=JSONField())  # noqa: S611 (the SQL is constant)
