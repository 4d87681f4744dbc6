"""Stop pods that no row requests.

A pod without a row is stopped, and one whose row says that it ended. Of a pod that did end, only the log
is kept, as long as its row.
"""

import logging
import uuid
from collections.abc import Iterable
from datetime import datetime, timedelta

from pools.models import NodePool
from pools.runtimes.base import PodState as Reported
from pools.runtimes.base import Runtime, RuntimeFailure
from projects.models import Pod
from projects.models.workloads import LIVE_POD_STATES
from scheduler.points import outside_transactions
from scheduler.post import Post

log = logging.getLogger(__name__)

ALIVE = (Reported.STARTING, Reported.RUNNING)
SETTLED = timedelta(seconds=60)  # a pod's row may be younger than what we read of the runtime


def sweep(now: datetime, post: Post) -> list[str]:
    """Returns what was found, as sentences."""
    outside_transactions()
    notes: list[str] = []
    done: set[int] = set()
    for pool in NodePool.objects.order_by("name"):
        runtime = post.runtimes(pool)
        if id(runtime) in done:
            continue
        done.add(id(runtime))
        try:
            notes += _sweep(runtime, now, post)
        except (RuntimeFailure, LookupError, OSError) as error:
            log.warning("the runtime of pool %s cannot be swept: %s", pool.name, error)
    return notes


def _sweep(runtime: Runtime, now: datetime, post: Post) -> Iterable[str]:
    kept = [pod_id for pod_id in runtime.known() if _is_ours(pod_id)]
    rows = {
        str(pk): (state, ended)
        for pk, state, ended in Pod.objects.filter(pk__in=kept).values_list("pk", "state", "ended_at")
    }
    for pod_id in kept:
        if not post.leads():
            return
        row = rows.get(pod_id)
        if row is None:
            report = runtime.look([pod_id])[pod_id]
            if report.state is not Reported.EXITED:
                runtime.stop(pod_id, 0)
                yield f"Pod {pod_id} ran without a row and was stopped."
            else:
                runtime.forget(pod_id)
        elif row[0] not in LIVE_POD_STATES and row[1] is not None and now - row[1] >= SETTLED:
            if runtime.look([pod_id])[pod_id].state in ALIVE:
                runtime.stop(pod_id, 0)
                yield f"Pod {pod_id} ran on although its row had ended, and was stopped."
            else:
                runtime.forget(pod_id)


def _is_ours(pod_id: str) -> bool:
    try:
        return str(uuid.UUID(pod_id)) == pod_id
    except ValueError:
        return False
