"""The user's own workloads and arrays on the overview."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Case, Exists, F, IntegerField, OuterRef, Q, QuerySet, When
from django.db.models.fields.json import KT
from django.db.models.functions import Cast
from django.utils.dateparse import parse_datetime

from berth.db.queries.first_rows import first_rows
from projects.actor import Actor
from projects.models import ArrayState, Phase, Workload, WorkloadArray, WorkloadKind
from projects.models.workloads import ENDED_PHASES, LIVE_PHASES
from projects.selectors import arrays, workloads
from projects.services.workloads.pending.unschedulable import REASON as UNSCHEDULABLE
from projects.web.arrays.progress import ArrayProgress, load_progress
from projects.web.arrays.queued_tasks import QueuedTasks, load_queued_tasks
from projects.web.services.serving import ServingStatus, load_serving_statuses
from projects.web.workloads.listing.engine_rows import exclude_added_engines, insert_inference_engine_rows
from projects.web.workloads.request_labels import set_request_labels

PENDING_PHASES = (Phase.PENDING, Phase.RESERVED)
QUEUE_POSITION = Cast(KT("explanation__queue_position"), IntegerField())
OWN_ORDER = (
    Case(When(phase__in=PENDING_PHASES, then=0), When(phase__in=ENDED_PHASES, then=2), default=1),
    QUEUE_POSITION.asc(nulls_last=True),
    F("ended_at").desc(nulls_last=True),
    F("submitted_at").desc(),
)
NO_POSITION = 2**31  # a number that sorts after all queue positions
DAY = timedelta(days=1)
OWN_MAX, PHONE_MAX = 8, 3
NO_FORECAST = (None, None, "")


@dataclass(frozen=True, slots=True)
class OwnWorkload:
    """Workload or array on the overview.

    An array has the `position` and `expected_start` of its first queued task, and `positions` such as "2-3".
    `start_reason` says why the start is unknown. A running service has the status of its engines. Phones show
    only rows with `is_on_phones`.
    """

    workload: Workload | None
    position: int | None
    expected_start: datetime | None
    start_reason: str = ""
    array: WorkloadArray | None = None
    progress: ArrayProgress | None = None
    serving: ServingStatus | None = None
    positions: str = ""
    is_on_phones: bool = False

    @property
    def row(self) -> Workload | WorkloadArray:
        row = self.workload or self.array
        assert row is not None
        return row

    @property
    def sort_key(self) -> tuple[int, int, float]:
        """Sort key. Pending workloads come first, by queue position. Ended workloads come last, the latest
        first.
        """
        row = self.row
        time = -(row.ended_at or row.submitted_at).timestamp()
        if row.ended_at:
            return 2, 0, time
        is_pending = self.workload is not None and self.workload.phase in PENDING_PHASES
        if self.progress is not None:
            is_pending = not self.progress.running
        return (0, self.position or NO_POSITION, time) if is_pending else (1, 0, time)


def own_workloads(actor: Actor, now: datetime, pool: str) -> list[OwnWorkload]:
    """Return up to OWN_MAX of the user's workloads and arrays that are live or ended in the last day.

    Pending ones come first, by queue position, and ended ones last. If `pool` is set, only those that may use
    this pool are returned.
    """
    if actor.user is None:
        return []
    matching = _matching_workloads(actor, now, pool)
    shown = list(first_rows(exclude_added_engines(matching).order_by(*OWN_ORDER), OWN_MAX))
    set_request_labels(shown)
    insert_inference_engine_rows(shown, matching, "")
    services = [row for row in shown if row.kind == WorkloadKind.SERVICE and row.phase == Phase.RUNNING]
    serving = load_serving_statuses(services)
    own = [_own_workload(row, serving.get(row.pk)) for row in shown]
    own = sorted([*own, *_own_arrays(actor, now, pool)], key=lambda each: each.sort_key)[:OWN_MAX]
    on_phones = _select_rows_for_phones(own)
    return [replace(each, is_on_phones=index in on_phones) for index, each in enumerate(own)]


def _select_rows_for_phones(own: Sequence[OwnWorkload]) -> set[int]:
    """Return the indexes of up to PHONE_MAX rows, including the first pending, running and ended row."""
    groups = [each.sort_key[0] for each in own]
    first = [index for index, group in enumerate(groups) if group not in groups[:index]]
    others = [index for index in range(len(own)) if index not in first]
    return set([*first, *others][:PHONE_MAX])


def count_own_workloads(actor: Actor, now: datetime, pool: str) -> int:
    """Return the number of workloads and arrays that `own_workloads` would return without its limit."""
    if actor.user is None:
        return 0
    matching = _matching_workloads(actor, now, pool)
    return exclude_added_engines(matching).count() + _matching_arrays(actor, now, pool).count()


def _matching_workloads(actor: Actor, now: datetime, pool: str) -> QuerySet[Workload]:
    is_shown = Q(phase__in=LIVE_PHASES) | Q(phase__in=ENDED_PHASES, ended_at__gte=now - DAY)
    in_pool = Q(pools__contains=[pool]) if pool else Q()
    return workloads(actor).filter(is_shown, in_pool, submitted_by=actor.user, array=None)


def _matching_arrays(actor: Actor, now: datetime, pool: str) -> QuerySet[WorkloadArray]:
    is_shown = Q(state=ArrayState.ACTIVE) | Q(ended_at__gte=now - DAY)
    rows = arrays(actor).filter(is_shown, submitted_by=actor.user)
    tasks = Workload.objects.filter(array=OuterRef("pk"), pools__contains=[pool])
    return rows.filter(Exists(tasks)) if pool else rows


def _own_arrays(actor: Actor, now: datetime, pool: str) -> list[OwnWorkload]:
    rows = list(_matching_arrays(actor, now, pool)[:OWN_MAX])
    if not rows:
        return []
    progress = load_progress(rows)
    tasks = Workload.objects.filter(array__in=rows, phase__in=LIVE_PHASES)
    queued = tasks.filter(phase=Phase.PENDING, held=False)
    by_position = queued.order_by("array_id", QUEUE_POSITION.asc(nulls_last=True), "array_index")
    forecasts = {task.array_id: _stored_forecast(task) for task in by_position.distinct("array_id")}
    queued_tasks = load_queued_tasks([row.pk for row in rows])
    return [
        _own_array(row, progress[row.pk], queued_tasks.get(row.pk), forecasts.get(row.pk, NO_FORECAST)[2])
        for row in rows
    ]


def _own_array(
    row: WorkloadArray, progress: ArrayProgress, queued: QueuedTasks | None, start_reason: str
) -> OwnWorkload:
    if queued is None:
        return OwnWorkload(None, *NO_FORECAST, row, progress)
    forecast = (queued.first_position, queued.next_start, start_reason)
    return OwnWorkload(None, *forecast, row, progress, positions=queued.position_text)


def _own_workload(row: Workload, serving: ServingStatus | None) -> OwnWorkload:
    position, start, start_reason = _stored_forecast(row)
    positions = "" if position is None else str(position)
    return OwnWorkload(row, position, start, start_reason, serving=serving, positions=positions)


def _stored_forecast(workload: Workload) -> tuple[int | None, datetime | None, str]:
    """Return the queue position, the expected start and, if the start is unknown, the reason.

    Position and start are None if unknown. The reason can be empty.
    """
    if workload.phase not in PENDING_PHASES or workload.reason == UNSCHEDULABLE:
        return NO_FORECAST
    explanation: dict[str, Any] = workload.explanation or {}
    start = explanation.get("expected_start")
    position = explanation.get("queue_position") if workload.phase == Phase.PENDING else None
    because = explanation.get("expected_start_reason") or ""
    return position, parse_datetime(start) if start else None, because
