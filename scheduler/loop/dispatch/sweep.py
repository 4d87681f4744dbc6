"""Stop running pods that have no live row.

A pod is stopped if it has no row or if its row has ended. The log of an ended pod is kept as long as the row.
"""

import logging
import uuid
from collections.abc import Iterable
from datetime import datetime, timedelta

from berth.db.crash_points import assert_no_transaction
from pools.models import NodePool
from pools.runtimes.base import PodState as Reported
from pools.runtimes.base import Runtime, RuntimeFailure
from projects.models import Pod
from projects.models.workloads import LIVE_POD_STATES
from scheduler.loop.context import SchedulerContext

log = logging.getLogger(__name__)

ALIVE = (Reported.STARTING, Reported.RUNNING)
# Do not sweep rows that ended more recently: they may be newer than the runtime's report.
MIN_ENDED_AGE = timedelta(seconds=60)


def sweep(now: datetime, context: SchedulerContext) -> list[str]:
    """Sweep every runtime once. Return a note for each stopped pod."""
    assert_no_transaction()
    notes: list[str] = []
    swept: set[int] = set()
    for pool in NodePool.objects.order_by("name"):
        runtime = context.runtimes(pool)
        if id(runtime) in swept:
            continue
        swept.add(id(runtime))
        try:
            notes += _sweep_runtime(runtime, now, context)
        except (RuntimeFailure, LookupError, OSError) as error:
            log.warning("the runtime of pool %s cannot be swept: %s", pool.name, error)
    return notes


def _sweep_runtime(runtime: Runtime, now: datetime, context: SchedulerContext) -> Iterable[str]:
    pod_ids = [pod_id for pod_id in runtime.list_pods() if _is_pod_id(pod_id)]
    rows = {
        str(pk): (state, ended)
        for pk, state, ended in Pod.objects.filter(pk__in=pod_ids).values_list("pk", "state", "ended_at")
    }
    for pod_id in pod_ids:
        if not context.leads():
            return
        row = rows.get(pod_id)
        if row is None:
            report = runtime.get_reports([pod_id])[pod_id]
            if report.state is not Reported.EXITED:
                runtime.stop(pod_id, 0)
                yield f"Pod {pod_id} was running without a row and was stopped."
            else:
                runtime.forget(pod_id)
        elif row[0] not in LIVE_POD_STATES and row[1] is not None and now - row[1] >= MIN_ENDED_AGE:
            if runtime.get_reports([pod_id])[pod_id].state in ALIVE:
                runtime.stop(pod_id, 0)
                yield f"Pod {pod_id} was still running after its row had ended, and was stopped."
            else:
                runtime.forget(pod_id)


def _is_pod_id(pod_id: str) -> bool:
    try:
        return str(uuid.UUID(pod_id)) == pod_id
    except ValueError:
        return False
