"""Queue positions and expected start times of queued array tasks."""

import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from django.contrib.postgres.aggregates import ArrayAgg
from django.db.models import Count, IntegerField, Min
from django.db.models.fields.json import KT
from django.db.models.functions import Cast
from django.utils.dateparse import parse_datetime

from berth.core.wording.words import format_positions
from projects.models import Phase, Workload
from projects.services.workloads.pending.unschedulable import REASON as UNSCHEDULABLE

POSITION = Cast(KT("explanation__queue_position"), IntegerField())


@dataclass(frozen=True, slots=True)
class QueuedTasks:
    """Queue positions of an array's tasks, and the earliest of their expected starts.

    The positions are empty if they are unknown, or if the tasks are queued in several pools.
    """

    numbers: Sequence[int]
    next_start: datetime | None

    @property
    def first_position(self) -> int | None:
        return min(self.numbers, default=None)

    @property
    def position_text(self) -> str:
        """Text such as "2" or "2-3, 7"."""
        return format_positions(self.numbers)

    @property
    def positions(self) -> str:
        """Text such as "Position 2" or "Positions 2-3, 7"."""
        return f"Position{'s' if len(self.numbers) > 1 else ''} {self.position_text}" if self.numbers else ""


def load_queued_tasks(arrays: Collection[uuid.UUID]) -> Mapping[uuid.UUID, QueuedTasks]:
    """Return the queued tasks of each array that has any, as of the last scheduling cycle."""
    if not arrays:
        return {}
    tasks = Workload.objects.filter(array__in=list(arrays), phase=Phase.PENDING, held=False).order_by()
    rows = tasks.exclude(reason=UNSCHEDULABLE).values_list("array")
    return {
        array: QueuedTasks(
            [each for each in positions if each is not None] if queues <= 1 else (),
            parse_datetime(start) if start else None,
        )
        for array, positions, start, queues in rows.annotate(
            positions=ArrayAgg(POSITION, distinct=True),
            start=Min(KT("explanation__expected_start")),
            queues=Count(KT("explanation__pool"), distinct=True),
        )
    }
