"""Edits that the stored explanation of a pending workload does not consider yet."""

from datetime import datetime

from projects.models import Event, Phase, Workload
from scheduler.models import Cycle


def edited_since_evaluation(workload: Workload) -> datetime | None:
    """Return when a pending workload was last edited, if no cycle has considered the edit. Otherwise, return
    None.

    An explanation that stays the same is not written again, so the last cycle's time counts as well.
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
    cycle = Cycle.objects.order_by("-id").values_list("at", flat=True).first()
    return edit if cycle is None or cycle <= edit else None
