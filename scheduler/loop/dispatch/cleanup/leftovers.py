"""Clean up after deleted workloads: delete logs directly, and workspaces through the task queue.

A crash is harmless, because every deletion can be repeated.
"""

import logging
from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

from django.db.models import Q
from django_q.tasks import async_task

from berth.db.loops.crash_points import assert_no_transaction
from berth.db.loops.lease import fenced_transaction
from pools.models import NodePool
from pools.runtimes.base import PodState as Reported
from pools.runtimes.base import Runtime, RuntimeFailure
from projects.models import Leftover
from scheduler.loop.context import SchedulerContext

log = logging.getLogger(__name__)

MAX_ROWS_PER_ROUND = 500  # maximum number of rows per round; the next round processes further rows
BATCH_SIZE = 20  # number of rows between two pauses in which the loop handles wake-ups
# Retry interval for lost tasks, longer than the retry interval of the task queue.
RETRY_INTERVAL = timedelta(minutes=15)
TASK = "scheduler.tasks.clear_workspace"


def delete_logs_of_deleted_workloads(context: SchedulerContext) -> Iterator[int]:
    """Delete the logs of deleted workloads in batches.

    After each batch, yield the number of pods whose logs were deleted.
    """
    assert_no_transaction()
    by_pool: dict[NodePool, list[Leftover]] = defaultdict(list)
    pods = Leftover.objects.filter(kind=Leftover.Kind.POD).select_related("pool").order_by("pk")
    for leftover in pods[:MAX_ROWS_PER_ROUND]:
        by_pool[leftover.pool].append(leftover)
    for pool, leftovers in by_pool.items():
        try:
            yield from _clear_pods(leftovers, context.runtimes(pool), context)
        except (RuntimeFailure, LookupError, OSError) as error:
            log.warning("pods of deleted workloads in pool %s cannot be cleared: %s", pool.name, error)


def queue_workspace_deletions(now: datetime, context: SchedulerContext) -> Iterator[int]:
    """Queue workspaces for deletion, and yield the number of queued workspaces after each batch."""
    due = Leftover.objects.filter(
        Q(handed_at__isnull=True) | Q(handed_at__lte=now - RETRY_INTERVAL), kind=Leftover.Kind.WORKSPACE
    )
    for _ in range(0, MAX_ROWS_PER_ROUND, BATCH_SIZE):
        if not due.exists():
            return
        with fenced_transaction(context.held_lease):
            queued = list(due.order_by("pk").values_list("pk", flat=True)[:BATCH_SIZE])
            for pk in queued:
                async_task(TASK, pk)
            Leftover.objects.filter(pk__in=queued).update(handed_at=now)
        yield len(queued)


def _clear_pods(leftovers: Sequence[Leftover], runtime: Runtime, context: SchedulerContext) -> Iterator[int]:
    pod_ids = set(runtime.list_pods())
    for first in range(0, len(leftovers), BATCH_SIZE):
        cleared = [
            leftover.pk
            for leftover in leftovers[first : first + BATCH_SIZE]
            if context.leads() and _clear_pod(leftover.name, runtime, leftover.name in pod_ids)
        ]
        if cleared:
            with fenced_transaction(context.held_lease):
                Leftover.objects.filter(pk__in=cleared).delete()
        yield len(cleared)


def _clear_pod(pod_id: str, runtime: Runtime, is_known: bool) -> bool:
    """Delete a pod's log, or stop the pod if it is still running. Return whether the log was deleted."""
    if is_known:
        if runtime.get_reports([pod_id])[pod_id].state is not Reported.EXITED:
            runtime.stop(pod_id, 0)
            return False
        runtime.forget(pod_id)
    runtime.drop_log(pod_id)
    return True
