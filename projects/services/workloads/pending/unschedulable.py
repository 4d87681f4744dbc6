"""Report unschedulable workloads, once per pending period."""

from collections.abc import Mapping
from datetime import datetime
from uuid import UUID

from projects.models import Event, Phase, Workload
from projects.services import events
from projects.services.notifications import deliveries

EVENT, REASON = "unschedulable", "Unschedulable"


def report_unschedulable(messages: Mapping[UUID, str], *, actor: str, now: datetime) -> int:
    """Report unschedulable workloads, and return the number of new reports.

    Must be called in the transaction that stores the reason.
    """
    if not messages:
        return 0
    events_before = Event.objects.filter(kind=EVENT, workload_id__in=messages.keys())
    reported_before = set(events_before.values_list("workload_id", "data__since"))
    rows = Workload.objects.filter(pk__in=messages.keys(), phase=Phase.PENDING)
    rows = rows.select_related("project", "submitted_by").order_by("pk")
    reported = [row for row in rows if (row.pk, row.since.isoformat()) not in reported_before]
    if not reported:
        return 0
    events.record_all(
        events.build(
            EVENT, row, messages[row.pk], actor=actor, data={"reason": REASON, "since": row.since.isoformat()}
        )
        for row in reported
    )
    deliveries.enqueue_unschedulable_workloads([(row, messages[row.pk]) for row in reported], now)
    return len(reported)
