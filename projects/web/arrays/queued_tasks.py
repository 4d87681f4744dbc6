"""Queue positions and expected starts of the queued tasks of arrays."""

import uuid
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime

from django.db.models import Count, IntegerField, Max, Min
from django.db.models.fields.json import KT
from django.db.models.functions import Cast
from django.utils.dateparse import parse_datetime

from projects.models import Phase, Workload
from projects.services.workloads.pending.unschedulable import REASON as UNSCHEDULABLE

POSITION = Cast(KT("explanation__queue_position"), IntegerField())


@dataclass(frozen=True, slots=True)
class QueuedTasks:
    """Queue positions of an array's tasks as text, such as "Positions 2-3", and the first expected start.

    The positions are empty if they are unknown, or if the tasks are queued in several pools.
    """

    positions: str
    next_start: datetime | None


def load_queued_tasks(arrays: Collection[uuid.UUID]) -> Mapping[uuid.UUID, QueuedTasks]:
    """Return the queued tasks of each array that has any, as of the last scheduling cycle."""
    if not arrays:
        return {}
    tasks = Workload.objects.filter(array__in=list(arrays), phase=Phase.PENDING, held=False).order_by()
    rows = tasks.exclude(reason=UNSCHEDULABLE).values_list("array")
    return {
        array: QueuedTasks(
            _format_positions(first, last) if pools == 1 else "", parse_datetime(start) if start else None
        )
        for array, first, last, start, pools in rows.annotate(
            first=Min(POSITION),
            last=Max(POSITION),
            start=Min(KT("explanation__expected_start")),
            queues=Count(KT("explanation__pool"), distinct=True),
        )
    }


def _format_positions(first: int | None, last: int | None) -> str:
    if first is None:
        return ""
    return f"Position {first}" if first == last else f"Positions {first}\N{EN DASH}{last}"
