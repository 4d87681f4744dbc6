"""Query the GPU utilization of workloads, and find workloads with idle GPUs."""

import uuid
from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime, timedelta

from django.conf import settings
from django.db.models import Count, Max, Q

from projects.models import Pod, PodState

MAX_MEASUREMENT_AGE = timedelta(minutes=2)  # older measurements are ignored
RUNNING_STATES = (PodState.RUNNING, PodState.STOPPING)


def idle_since(workloads: Iterable[uuid.UUID], now: datetime) -> dict[uuid.UUID, datetime]:
    """Return when all GPUs of each workload became idle.

    Workloads that have been idle for less than the warning threshold are omitted.
    """
    pods_with_gpus = Pod.objects.filter(
        workload__in=list(workloads), state__in=RUNNING_STATES, allocation__released_at=None,
        allocation__devices__len__gt=0,
    ).order_by()  # fmt: skip
    unknown = Q(use__busy_at=None) | Q(use__at__lt=now - MAX_MEASUREMENT_AGE)
    rows = pods_with_gpus.values("workload_id").annotate(
        since=Max("use__busy_at"), unknown=Count("pk", filter=unknown)
    )
    after = now - timedelta(minutes=settings.BERTH_IDLE_GPU_MINUTES)
    return dict(rows.filter(unknown=0, since__lte=after).values_list("workload_id", "since"))


def mean_utilization(workloads: Iterable[uuid.UUID], now: datetime) -> dict[uuid.UUID, int]:
    """Return the mean utilization of each workload's GPUs at the last measurement, in thousandths.

    Workloads without a recent measurement are omitted.
    """
    rows = Pod.objects.filter(
        workload__in=list(workloads), state__in=RUNNING_STATES, use__at__gte=now - MAX_MEASUREMENT_AGE
    )
    measured: dict[uuid.UUID, list[int]] = defaultdict(list)
    for workload, devices in rows.order_by().values_list("workload_id", "use__devices"):
        measured[workload] += [busy for busy, _ in devices if busy is not None]
    return {workload: round(sum(busy) / len(busy)) for workload, busy in measured.items() if busy}


def last_measured_at(workloads: Iterable[uuid.UUID]) -> dict[uuid.UUID, datetime]:
    """Return when the GPUs of each running workload were last measured.

    Workloads that were never measured are omitted.
    """
    measured = Pod.objects.filter(
        workload__in=list(workloads), state__in=RUNNING_STATES, use__busy_at__isnull=False
    )
    return dict(measured.order_by().values_list("workload_id").annotate(at=Max("use__at")))
