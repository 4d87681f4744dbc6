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
    """Queue positions of an array's tasks, and their first expected start.

    The positions are None if they are unknown, or if the tasks are queued in several pools.
    """

    first_position: int | None
    last_position: int | None
    next_start: datetime | None

    @property
    def position_range(self) -> str:
        """Text such as "2" or "2-3"."""
        if self.first_position is None or self.first_position == self.last_position:
            return "" if self.first_position is None else str(self.first_position)
        return f"{self.first_position}\N{EN DASH}{self.last_position}"

    @property
    def positions(self) -> str:
        """Text such as "Position 2" or "Positions 2-3"."""
        if self.first_position is None:
            return ""
        plural = "" if self.first_position == self.last_position else "s"
        return f"Position{plural} {self.position_range}"


def load_queued_tasks(arrays: Collection[uuid.UUID]) -> Mapping[uuid.UUID, QueuedTasks]:
    """Return the queued tasks of each array that has any, as of the last scheduling cycle."""
    if not arrays:
        return {}
    tasks = Workload.objects.filter(array__in=list(arrays), phase=Phase.PENDING, held=False).order_by()
    rows = tasks.exclude(reason=UNSCHEDULABLE).values_list("array")
    return {
        array: QueuedTasks(
            first if queues <= 1 else None,
            last if queues <= 1 else None,
            parse_datetime(start) if start else None,
        )
        for array, first, last, start, queues in rows.annotate(
            first=Min(POSITION),
            last=Max(POSITION),
            start=Min(KT("explanation__expected_start")),
            queues=Count(KT("explanation__pool"), distinct=True),
        )
    }
