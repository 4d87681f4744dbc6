"""Clean up after deleted workloads: logs at once, workspaces by the task queue.

A workspace may hold millions of files: nobody waits for that here. A crash between a machine and its row
does no harm: what is gone already is dropped once more, what was handed over in vain is handed over again.
"""

import logging
from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime, timedelta

from django.db.models import Q
from django_q.tasks import async_task

from berth.db.lease import fenced
from pools.models import NodePool
from pools.runtimes.base import PodState as Reported
from pools.runtimes.base import Runtime, RuntimeFailure
from projects.models import Leftover
from scheduler.points import outside_transactions
from scheduler.post import Post

log = logging.getLogger(__name__)

MOST = 500  # in one round: somebody waits for the loop
AGAIN = timedelta(minutes=15)  # longer than the queue takes to try again by itself
TASK = "scheduler.tasks.clear_workspace"


def clear_logs(post: Post) -> int:
    """Returns how many pods are gone."""
    outside_transactions()
    by_pool: dict[NodePool, list[Leftover]] = defaultdict(list)
    pods = Leftover.objects.filter(kind=Leftover.Kind.POD).select_related("pool").order_by("pk")
    for left in pods[:MOST]:
        by_pool[left.pool].append(left)
    gone: list[int] = []
    for pool, lefts in by_pool.items():
        try:
            gone += _clear(lefts, post.runtimes(pool), post)
        except (RuntimeFailure, LookupError, OSError) as error:
            log.warning("what was left in the pool %s cannot be cleared away: %s", pool.name, error)
    if gone:
        with fenced(post.held):
            Leftover.objects.filter(pk__in=gone).delete()
    return len(gone)


def hand_over_workspaces(now: datetime, post: Post) -> int:
    """Returns how many. The queue's row and the note of it are one transaction."""
    due = Leftover.objects.filter(
        Q(handed_at__isnull=True) | Q(handed_at__lte=now - AGAIN), kind=Leftover.Kind.WORKSPACE
    )
    if not due.exists():
        return 0
    with fenced(post.held):
        handed = list(due.order_by("pk").values_list("pk", flat=True)[:MOST])
        for pk in handed:
            async_task(TASK, pk)
        Leftover.objects.filter(pk__in=handed).update(handed_at=now)
    return len(handed)


def _clear(lefts: Iterable[Leftover], runtime: Runtime, post: Post) -> list[int]:
    known, gone = set(runtime.known()), []
    for left in lefts:
        if not post.leads():
            break
        if _drop_pod(left.name, runtime, left.name in known):
            gone.append(left.pk)
    return gone


def _drop_pod(pod_id: str, runtime: Runtime, is_known: bool) -> bool:
    """False while something of it still runs: then it is told to stop, and its turn comes again."""
    if is_known:
        if runtime.look([pod_id])[pod_id].state is not Reported.EXITED:
            runtime.stop(pod_id, 0)
            return False
        runtime.forget(pod_id)
    runtime.drop_log(pod_id)
    return True
