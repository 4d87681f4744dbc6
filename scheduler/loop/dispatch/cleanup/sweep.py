"""Stop running pods whose row is missing or marked as ended, and delete the runtimes' records of finished
pods.
"""

import logging
import uuid
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from berth.db.loops.crash_points import assert_no_transaction
from berth.db.queries.compiled import compiled_once
from pools.runtimes.base import PodState as Reported
from pools.runtimes.base import Runtime, RuntimeFailure
from projects.models import OutputState, Pod, PodOutputs
from projects.models.workloads import LIVE_POD_STATES
from scheduler.loop.context import SchedulerContext
from scheduler.loop.queries import POOLS

log = logging.getLogger(__name__)

OUTPUTS_KEPT = timedelta(days=1)  # maximum time to keep an ended pod's files until its outputs are stored

ALIVE = (Reported.STARTING, Reported.RUNNING)
# Skip rows that ended more recently, because they may be newer than the runtime's report.
MIN_ENDED_AGE = timedelta(seconds=60)
BATCH_SIZE = 1000  # number of pods whose rows are read in one query
FORGETS_AHEAD = 32  # maximum number of pod records that a runtime deletes at the same time
ROWS = compiled_once(
    lambda keys: Pod.objects.filter(pk__any=keys).values_list(
        "pk", "node__pool_id", "state", "ended_at", "files_until"
    )
)


def sweep(now: datetime, context: SchedulerContext) -> Iterator[str]:
    """Sweep every runtime once, pod by pod. Yield a note for each stopped pod, and "" after other steps."""
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


@dataclass(frozen=True, slots=True)
class _LingeringPod:
    """Pod that should have ended but is still listed by its runtime. `pool` is None if the pod has no row."""

    pod_id: str
    pool: int | None
    has_files: bool


def _sweep_runtime(runtime: Runtime, now: datetime, context: SchedulerContext) -> Iterator[str]:
    """Sweep one runtime's pods.

    If the cluster of a pool fails, the pool's remaining pods are left for the next sweep.
    """
    failed: set[int | None] = set()
    for pod in _forget_pods_concurrently(_ended_pods(runtime, now), runtime, failed, context):
        if pod is None:
            yield ""
            continue
        if pod.pool in failed:
            continue
        if not context.leads():
            return
        try:
            note = _sweep_pod(runtime, pod)
        except RuntimeFailure as error:
            log.warning("pod %s cannot be swept: %s", pod.pod_id, error)
            if pod.pool is not None:
                failed.add(pod.pool)
        except (LookupError, OSError) as error:
            log.warning("pod %s cannot be swept: %s", pod.pod_id, error)
        else:
            yield note


def _ended_pods(runtime: Runtime, now: datetime) -> Iterator[_LingeringPod | None]:
    """Yield the runtime's pods that should have ended, and None after each query."""
    pod_ids = [pod_id for pod_id in runtime.list_pods() if _is_pod_id(pod_id)]
    for first in range(0, len(pod_ids), BATCH_SIZE):
        batch = pod_ids[first : first + BATCH_SIZE]
        rows = {str(row[0]): row[1:] for row in ROWS(batch)}
        with_outputs = _pods_with_outputs(batch, now)
        yield None
        for pod_id in batch:
            row = rows.get(pod_id)
            if row is None:
                yield _LingeringPod(pod_id, None, pod_id in with_outputs)
            elif _has_ended_long_ago(row[1], row[2], now):
                keeps_files = row[3] is not None and row[3] > now
                yield _LingeringPod(pod_id, row[0], pod_id in with_outputs or keeps_files)


def _forget_pods_concurrently(
    pods: Iterable[_LingeringPod | None], runtime: Runtime, failed: set[int | None], context: SchedulerContext
) -> Iterator[_LingeringPod | None]:
    """Delete the runtime's records of the pods in the background, up to FORGETS_AHEAD at a time, and yield
    the pods in order.
    """
    ahead: deque[_LingeringPod] = deque()
    for pod in pods:
        if pod is None:
            yield None
            continue
        if pod.pool is not None and not pod.has_files and pod.pool not in failed and context.leads():
            runtime.forget_in_background(pod.pod_id)
        ahead.append(pod)
        if len(ahead) == FORGETS_AHEAD:
            yield ahead.popleft()
    yield from ahead


def _pods_with_outputs(pod_ids: list[str], now: datetime) -> set[str]:
    """Return the IDs of recently finished pods whose outputs have not been read yet."""
    keys = [uuid.UUID(pod_id) for pod_id in pod_ids]
    rows = PodOutputs.objects.filter(pod__in=keys, state=OutputState.WAITING)
    rows = rows.filter(pod__ended_at__gt=now - OUTPUTS_KEPT)
    return {str(pk) for pk in rows.exclude(pod__state__in=LIVE_POD_STATES).values_list("pod_id", flat=True)}


def _sweep_pod(runtime: Runtime, pod: _LingeringPod) -> str:
    """Stop a pod that still runs, or delete the runtime's record of a pod whose files are no longer needed.

    Return a note if the pod was stopped, otherwise "".
    """
    state = runtime.get_reports([pod.pod_id])[pod.pod_id].state
    if pod.pool is None and state is not Reported.EXITED:
        runtime.stop(pod.pod_id, 0)
        return f"Pod {pod.pod_id} was running without a row and was stopped."
    if pod.pool is not None and state in ALIVE:
        runtime.stop(pod.pod_id, 0)
        return f"Pod {pod.pod_id} was still running after its row had ended, and was stopped."
    if not pod.has_files:
        runtime.forget(pod.pod_id)
    return ""


def _has_ended_long_ago(state: str, ended: datetime | None, now: datetime) -> bool:
    return state not in LIVE_POD_STATES and ended is not None and now - ended >= MIN_ENDED_AGE


def _is_pod_id(pod_id: str) -> bool:
    try:
        return str(uuid.UUID(pod_id)) == pod_id
    except ValueError:
        return False
