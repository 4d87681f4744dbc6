"""Stop running pods whose row is missing or marked as ended, and delete runtimes' records of ended pods.

An ended pod's log is kept as long as its row exists. Its files are kept until its outputs are stored, and
until the time in `files_until`.
"""

import logging
import uuid
from collections.abc import Iterator
from datetime import datetime, timedelta

from berth.db.compiled import compiled_once
from berth.db.crash_points import assert_no_transaction
from pools.runtimes.base import PodState as Reported
from pools.runtimes.base import Runtime, RuntimeFailure
from projects.models import OutputState, Pod, PodOutputs
from projects.models.workloads import LIVE_POD_STATES
from scheduler.loop.context import SchedulerContext
from scheduler.loop.queries import POOLS

log = logging.getLogger(__name__)

OUTPUTS_KEPT = timedelta(days=1)  # maximum time that files of ended pods are kept for outputs not yet stored

ALIVE = (Reported.STARTING, Reported.RUNNING)
# Skip rows that ended more recently, because they may be newer than the runtime's report.
MIN_ENDED_AGE = timedelta(seconds=60)
BATCH_SIZE = 1000  # number of pods whose rows are read in one query
ROWS = compiled_once(
    lambda keys: Pod.objects.filter(pk__any=keys).values_list(
        "pk", "node__pool_id", "state", "ended_at", "files_until"
    )
)


def sweep(now: datetime, context: SchedulerContext) -> Iterator[str]:
    """Sweep every runtime once, pod by pod. Yield a note for each stopped pod, and "" after other steps.

    The caller may pause between two steps, because an ended row never becomes live again.
    """
    assert_no_transaction()
    swept: set[int] = set()
    for pool in POOLS():
        runtime = context.runtimes(pool)
        if id(runtime) in swept:
            continue
        swept.add(id(runtime))
        try:
            yield from _sweep_runtime(runtime, now, context)
        except (RuntimeFailure, LookupError, OSError) as error:
            log.warning("the runtime of pool %s cannot be swept: %s", pool.name, error)


def _sweep_runtime(runtime: Runtime, now: datetime, context: SchedulerContext) -> Iterator[str]:
    """Sweep the pods of a runtime.

    If a pool's cluster has failed, its remaining pods wait for the next sweep.
    """
    pod_ids = [pod_id for pod_id in runtime.list_pods() if _is_pod_id(pod_id)]
    failed: set[int] = set()
    for number, pod_id in enumerate(pod_ids):
        if number % BATCH_SIZE == 0:
            batch = pod_ids[number : number + BATCH_SIZE]
            rows = {str(row[0]): row[1:] for row in ROWS(batch)}
            with_outputs = _pods_with_outputs(batch, now)
            yield ""
        row = rows.get(pod_id)
        if row is not None and (row[0] in failed or not _ended_long_ago(row[1], row[2], now)):
            continue
        if not context.leads():
            return
        try:
            has_files = pod_id in with_outputs or (row is not None and row[3] is not None and row[3] > now)
            note = _sweep_pod(runtime, pod_id, has_row=row is not None, has_files=has_files)
        except RuntimeFailure as error:
            log.warning("pod %s cannot be swept: %s", pod_id, error)
            if row is not None:
                failed.add(row[0])
        except (LookupError, OSError) as error:
            log.warning("pod %s cannot be swept: %s", pod_id, error)
        else:
            yield note


def _pods_with_outputs(pod_ids: list[str], now: datetime) -> set[str]:
    """Return the ended pods whose outputs have not been read yet.

    Pods that ended long ago are excluded, because no collector may be running.
    """
    keys = [uuid.UUID(pod_id) for pod_id in pod_ids]
    rows = PodOutputs.objects.filter(pk__in=keys, state=OutputState.WAITING)
    rows = rows.filter(pod__ended_at__gt=now - OUTPUTS_KEPT)
    return {str(pk) for pk in rows.exclude(pod__state__in=LIVE_POD_STATES).values_list("pod_id", flat=True)}


def _sweep_pod(runtime: Runtime, pod_id: str, *, has_row: bool, has_files: bool) -> str:
    """Stop the pod if it is still running. Otherwise forget the pod, unless its files are still needed."""
    state = runtime.get_reports([pod_id])[pod_id].state
    if not has_row and state is not Reported.EXITED:
        runtime.stop(pod_id, 0)
        return f"Pod {pod_id} was running without a row and was stopped."
    if has_row and state in ALIVE:
        runtime.stop(pod_id, 0)
        return f"Pod {pod_id} was still running after its row had ended, and was stopped."
    if not has_files:
        runtime.forget(pod_id)
    return ""


def _ended_long_ago(state: str, ended: datetime | None, now: datetime) -> bool:
    return state not in LIVE_POD_STATES and ended is not None and now - ended >= MIN_ENDED_AGE


def _is_pod_id(pod_id: str) -> bool:
    try:
        return str(uuid.UUID(pod_id)) == pod_id
    except ValueError:
        return False
