"""Clean up after deleted workloads: delete logs directly, and workspaces through the task queue.

A workspace may hold millions of files, too many to delete in the loop. A crash between a deletion and the
update of its row does no harm: deleting twice is safe, and a lost job is queued again.
"""

import logging
from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime, timedelta

from django.db.models import Q
from django_q.tasks import async_task

from berth.db.crash_points import assert_no_transaction
from berth.db.lease import fenced_transaction
from pools.models import NodePool
from pools.runtimes.base import PodState as Reported
from pools.runtimes.base import Runtime, RuntimeFailure
from projects.models import Leftover
from scheduler.loop.context import SchedulerContext

log = logging.getLogger(__name__)

MAX_ROWS_PER_ROUND = 500  # maximum rows per round, so that the loop is not delayed
RETRY_INTERVAL = timedelta(
    minutes=15
)  # retry interval for lost jobs, longer than the task queue's own retries
TASK = "scheduler.tasks.clear_workspace"


def clear_logs(context: SchedulerContext) -> int:
    """Delete the logs of deleted workloads. Return the number of cleared pods."""
    assert_no_transaction()
    by_pool: dict[NodePool, list[Leftover]] = defaultdict(list)
    pods = Leftover.objects.filter(kind=Leftover.Kind.POD).select_related("pool").order_by("pk")
    for leftover in pods[:MAX_ROWS_PER_ROUND]:
        by_pool[leftover.pool].append(leftover)
    cleared: list[int] = []
    for pool, leftovers in by_pool.items():
        try:
            cleared += _clear_pods(leftovers, context.runtimes(pool), context)
        except (RuntimeFailure, LookupError, OSError) as error:
            log.warning("pods of deleted workloads in pool %s cannot be cleared: %s", pool.name, error)
    if cleared:
        with fenced_transaction(context.held_lease):
            Leftover.objects.filter(pk__in=cleared).delete()
    return len(cleared)


def queue_workspaces(now: datetime, context: SchedulerContext) -> int:
    """Queue workspaces for deletion and mark them in one transaction. Return the number queued."""
    due = Leftover.objects.filter(
        Q(handed_at__isnull=True) | Q(handed_at__lte=now - RETRY_INTERVAL), kind=Leftover.Kind.WORKSPACE
    )
    if not due.exists():
        return 0
    with fenced_transaction(context.held_lease):
        queued = list(due.order_by("pk").values_list("pk", flat=True)[:MAX_ROWS_PER_ROUND])
        for pk in queued:
            async_task(TASK, pk)
        Leftover.objects.filter(pk__in=queued).update(handed_at=now)
    return len(queued)


def _clear_pods(leftovers: Iterable[Leftover], runtime: Runtime, context: SchedulerContext) -> list[int]:
    pod_ids, cleared = set(runtime.list_pods()), []
    for leftover in leftovers:
        if not context.leads():
            break
        if _clear_pod(leftover.name, runtime, leftover.name in pod_ids):
            cleared.append(leftover.pk)
    return cleared


def _clear_pod(pod_id: str, runtime: Runtime, is_known: bool) -> bool:
    """Delete a pod's log, or stop the pod if it still runs. Return whether the log was deleted."""
    if is_known:
        if runtime.get_reports([pod_id])[pod_id].state is not Reported.EXITED:
            runtime.stop(pod_id, 0)
            return False
        runtime.forget(pod_id)
    runtime.drop_log(pod_id)
    return True
