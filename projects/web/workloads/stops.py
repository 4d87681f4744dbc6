"""Describe the cost of stopping workloads: lost work, requests no longer served, and time until SIGKILL."""

import uuid
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from django.db.models import Q
from django.utils import timezone

from berth.core.spec.parsing.parse import parse_workload
from berth.core.spec.parsing.rejection import SpecError
from berth.core.spec.workload import GRACE_DEFAULT
from berth.server.web.numbers import duration
from projects.models import Phase, Workload, WorkloadArray, WorkloadKind
from projects.queries.lost_work import work_lost_if_stopped
from projects.web.workloads.listing.engine_rows import added_engines

STOPPING_ACTIONS = ("cancel", "suspend")
PHASES_WITH_PODS = (Phase.STARTING, Phase.RUNNING, Phase.STOPPING)


@dataclass(frozen=True, slots=True)
class StopCost:
    """Cost of stopping workloads: the GPU-seconds of lost work, in total and by row.

    `stopped_services` and `time_to_stop` are sentences, or empty. `checkpoint_at` is the last checkpoint of a
    single workload.
    """

    lost_gpu_seconds: int
    lost_by_row: Mapping[uuid.UUID, int]
    checkpoint_at: datetime | None
    stopped_services: str
    time_to_stop: str


def stop_cost(action: str, rows: Iterable[Workload | WorkloadArray]) -> StopCost | None:
    """Return the cost of an action on workloads and arrays, or None if the action stops no pods."""
    if action not in STOPPING_ACTIONS:
        return None
    keys = [row.pk for row in rows]
    stopped = list(
        Workload.objects.filter(Q(pk__in=keys) | Q(array__in=keys), phase__in=PHASES_WITH_PODS).only(
            "pk", "name", "kind", "array", "spec", "started_at", "last_checkpoint_at"
        )
    )
    seconds_by_workload = work_lost_if_stopped([workload.pk for workload in stopped], timezone.now())
    lost_by_row = defaultdict[uuid.UUID, int](int)
    for workload in stopped:
        lost_by_row[workload.array_id or workload.pk] += seconds_by_workload.get(workload.pk, 0)
    # All tasks of an array have the same time to stop, so one task is enough.
    different = {workload.array_id or workload.pk: workload for workload in stopped}.values()
    return StopCost(
        sum(seconds_by_workload.values()),
        {pk: seconds for pk, seconds in lost_by_row.items() if seconds},
        _run_checkpoint(stopped[0]) if len(stopped) == 1 else None,
        _describe_services([workload for workload in stopped if workload.kind == WorkloadKind.SERVICE]),
        _describe_time_to_stop(_seconds_to_stop(workload, action) for workload in different),
    )


def _run_checkpoint(workload: Workload) -> datetime | None:
    started_at, checkpoint_at = workload.started_at, workload.last_checkpoint_at
    return checkpoint_at if started_at and checkpoint_at and checkpoint_at > started_at else None


def _seconds_to_stop(workload: Workload, action: str) -> int:
    """Return the time until SIGKILL. For a suspension, the time includes the preemption notice."""
    try:
        spec = parse_workload(workload.spec)
    except SpecError:  # the document was stored by an earlier version
        return GRACE_DEFAULT
    return spec.stop_seconds if action == "suspend" else spec.grace_period_seconds


def _describe_services(candidates: Collection[Workload]) -> str:
    """Return a sentence about the services that stop serving. Engines added to a service are ignored."""
    if not candidates:
        return ""
    engines = set(added_engines().filter(workload__in=candidates).values_list("workload", flat=True))
    names = [workload.name for workload in candidates if workload.pk not in engines]
    if len(names) > 1:
        return f"{len(names)} services stop serving requests."
    return f"The service {names[0]} stops serving requests." if names else ""


def _describe_time_to_stop(seconds: Iterable[int]) -> str:
    times = set(seconds)
    if not times:
        return ""
    if times == {0}:
        return "The pods are killed at once."
    return f"The pods have {'up to ' if len(times) > 1 else ''}{duration(max(times))} to stop."
