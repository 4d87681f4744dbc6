"""Links from failed workloads to the last log lines of the first pod that failed."""

from collections.abc import Iterable, Mapping
from uuid import UUID

from django.db.models import F
from django.urls import reverse

from projects.models import Phase, Pod, PodState, Workload

ERROR_LINES = 40  # number of lines at the end of a log that are searched for an error


def load_log_urls(workloads: Iterable[Workload]) -> Mapping[UUID, str]:
    """Return the URL of the last log lines of each failed workload's first failed pod.

    Only pods of the last run count.
    """
    failed = [workload.pk for workload in workloads if workload.phase == Phase.FAILED]
    if not failed:
        return {}
    pods = Pod.objects.filter(workload__in=failed, run=F("workload__run"), state=PodState.FAILED)
    rows = pods.order_by("workload_id", "ended_at", "rank").distinct("workload_id")
    return {
        pod.workload_id: f"{reverse('workload-log', args=[pod.workload_id])}?pod={pod.pk}&tail={ERROR_LINES}"
        for pod in rows
    }
