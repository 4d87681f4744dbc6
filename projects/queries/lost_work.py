"""Compute the work that workloads lose when they are stopped."""

import uuid
from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime

from django.db.models import F

from projects.models import Phase, Pod, WorkloadKind


def lost_gpu_seconds(gpu_milli: int, since: datetime, checkpoint_at: datetime | None, until: datetime) -> int:
    """Return the GPU-seconds of work since the start or, if it is later, the last checkpoint."""
    since = max(since, checkpoint_at or since)
    return max(int((until - since).total_seconds()), 0) * gpu_milli // 1000


def work_lost_if_stopped(workloads: Iterable[uuid.UUID], now: datetime) -> dict[uuid.UUID, int]:
    """Return the GPU-seconds of work that each running workload loses if it is stopped now.

    Workloads that would lose no work are omitted.
    """
    placed = Pod.objects.filter(
        workload__in=list(workloads), workload__phase=Phase.RUNNING, run=F("workload__run"),
        allocation__isnull=False,
    )  # fmt: skip
    pods = placed.exclude(workload__kind=WorkloadKind.SERVICE).select_related("workload", "allocation")
    seconds_by_workload = defaultdict[uuid.UUID, int](int)
    for pod in pods.defer("workload__spec"):
        workload = pod.workload
        if workload.started_at is None or pod.started_at is None:
            continue
        seconds_by_workload[workload.pk] += lost_gpu_seconds(
            pod.allocation.gpu_milli_total,
            max(workload.started_at, pod.started_at),
            workload.last_checkpoint_at,
            min(now, pod.ended_at or now),
        )
    return {pk: seconds for pk, seconds in seconds_by_workload.items() if seconds}
