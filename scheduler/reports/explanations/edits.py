"""Edits that the stored explanation of a pending workload does not consider yet."""

from datetime import datetime, timedelta

from django.utils import timezone

from projects.models import Event, Phase, Workload
from scheduler.models import Cycle
from scheduler.reports.health import is_scheduler_running

CONSIDERED_WITHIN = timedelta(seconds=30)  # short, because an edit wakes the scheduler


def unevaluated_edit_time(workload: Workload) -> datetime | None:
    """Return when a pending workload was last edited, or None if the scheduler has already evaluated the
    edit.
    """
    if workload.phase != Phase.PENDING or not workload.edits or workload.explained_at is None:
        return None
    edit = (
        Event.objects.filter(workload_id=workload.pk, kind="edited", at__gt=workload.explained_at)
        .order_by("-id")
        .values_list("at", flat=True)
        .first()
    )
    if edit is None:
        return None
    now = timezone.now()
    if now - edit > CONSIDERED_WITHIN and is_scheduler_running(now):
        return None
    cycle = Cycle.objects.order_by("-id").values_list("at", flat=True).first()
    return edit if cycle is None or cycle <= edit else None
