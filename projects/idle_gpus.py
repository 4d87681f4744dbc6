"""Find workloads with idle GPUs."""

import uuid
from collections.abc import Iterable
from datetime import datetime, timedelta

from django.conf import settings
from django.db.models import Count, Max, Q

from projects.models import Pod, PodState

MAX_MEASUREMENT_AGE = timedelta(minutes=2)  # older measurements are ignored
RUNNING_STATES = (PodState.RUNNING, PodState.STOPPING)


def idle_since(workloads: Iterable[uuid.UUID], now: datetime) -> dict[uuid.UUID, datetime]:
    """Return when all GPUs of each workload became idle, for workloads with idle GPUs.

    Workloads that have been idle for less than the warning threshold are omitted. Unmeasured GPUs do not
    count as idle.
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
