"""Here we count and give back what pods hold."""

import uuid
from collections.abc import Collection, Iterable
from datetime import datetime

from django.db import connection

from scheduler.models import Allocation, DeviceClaim

RECOUNT = """
    UPDATE projects_workload AS workload SET gpu_milli_now = coalesce((
        SELECT sum(held.gpu_milli::bigint * cardinality(held.devices))
          FROM scheduler_allocation AS held JOIN projects_pod AS pod ON pod.id = held.pod_id
         WHERE pod.workload_id = workload.id AND held.released_at IS NULL
    ), 0)
    WHERE workload.id = ANY(%s)
"""


def recount(workloads: Iterable[uuid.UUID]) -> None:
    """What the pods of these workloads hold now, counted anew from the rows."""
    ids = sorted(set(workloads))
    if ids:
        with connection.cursor() as cursor:
            cursor.execute(RECOUNT, [ids])


def release(pods: Collection[uuid.UUID], at: datetime) -> None:
    """Exactly once: a second time finds nothing left to give back."""
    if pods:
        Allocation.objects.filter(pod_id__in=pods, released_at__isnull=True).update(released_at=at)
        DeviceClaim.objects.filter(allocation__pod_id__in=pods).delete()
