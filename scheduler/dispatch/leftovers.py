"""Here the logs and workspaces of deleted workloads are cleared away, as the rows say that they left.

A crash between a machine and its row does no harm: what is gone already is dropped once more.
"""

import logging
from collections import defaultdict
from collections.abc import Iterable

from berth.db.lease import fenced
from pools.models import NodePool
from pools.runtimes.base import PodState as Reported
from pools.runtimes.base import Runtime, RuntimeFailure
from projects.models import Leftover
from scheduler.points import outside_transactions
from scheduler.post import Post

log = logging.getLogger(__name__)

MOST = 500  # in one round: somebody waits for the loop


def clear_leftovers(post: Post) -> int:
    """Returns how many are gone."""
    outside_transactions()
    by_pool: dict[NodePool, list[Leftover]] = defaultdict(list)
    for left in Leftover.objects.select_related("pool").order_by("pk")[:MOST]:
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


def _clear(lefts: Iterable[Leftover], runtime: Runtime, post: Post) -> list[int]:
    known, gone = set(runtime.known()), []
    for left in lefts:
        if not post.leads():
            break
        if left.kind == Leftover.Kind.WORKSPACE:
            runtime.drop_workspace(left.name)
        elif not _drop_pod(left.name, runtime, left.name in known):
            continue
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
