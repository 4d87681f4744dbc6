"""Detect the steady state of a simulation, in which no further cycle can decide anything.

When in doubt, the simulation counts as not steady.
"""

import math
from collections.abc import Iterator, Sequence
from itertools import chain

from berth.core.values.amounts import MILLI
from scheduler.engine.actions.backfill import current_hold_or_pause
from scheduler.engine.board.gang import leaf_roles
from scheduler.engine.model import Pod, Pool, Snapshot, Workload
from scheduler.engine.plan import UNSCHEDULABLE_REASONS, Plan, Reason, Rejection
from scheduler.simulator.gangs import LIVE_STATES, RUNNING_STATES, has_pod_in, is_finished
from scheduler.simulator.simulation import SimulatedCluster

CANNOT_START_REASONS = UNSCHEDULABLE_REASONS | {
    Reason.MISCONFIGURED,
    Reason.SUSPENDED,
    Reason.DEPENDENCY_NOT_MET,
    Reason.FETCHING_CODE,
}


def is_steady_state(last_two: Sequence[tuple[Snapshot, Plan]], world: SimulatedCluster) -> bool:
    """Return whether the last two cycles show that no further cycle can decide anything."""
    if len(last_two) < 2 or any(plan.bundles for _, plan in last_two) or world.next_change() is not None:
        return False
    (before, _), (now, plan) = last_two
    rejections = {rejection.workload: rejection for rejection in plan.rejections}
    with_demand = [
        workload for workload in now.workloads if _has_demand(workload, rejections.get(workload.name))
    ]
    times = chain(_decision_times(now), _hold_change_times(now, with_demand))
    if any(time > now.now for time in times):
        return False
    return (not with_demand or now.now >= _victim_order_settling_time(now)) and not any(
        _is_usage_changing(pool, with_demand, before, now) for pool in now.pools
    )


def _has_demand(workload: Workload, rejection: Rejection | None) -> bool:
    if is_finished(workload):
        return False
    if rejection is not None:
        return not _can_never_start(rejection, workload)
    return len(workload.pods) < sum(role.max for role in leaf_roles(workload.tree))


def _can_never_start(rejection: Rejection, workload: Workload) -> bool:
    reasons = {blocker.reason for blocker in rejection.blockers}
    return reasons <= CANNOT_START_REASONS or (
        len(workload.pools) == 1 and not reasons.isdisjoint(CANNOT_START_REASONS)
    )


def _decision_times(snapshot: Snapshot) -> Iterator[int]:
    min_runtime = max(chain(*(_min_runtimes(pool) for pool in snapshot.pools), _queue_min_runtimes(snapshot)))
    delay = max(pool.preemption_delay for pool in snapshot.pools)
    for workload in snapshot.workloads:
        if is_finished(workload):
            continue
        yield workload.backoff_until or 0
        if has_pod_in(workload, LIVE_STATES):
            yield _last_start_time(workload) + min_runtime
        longest_delay = max(delay, workload.preemption_delay or 0)
        yield workload.submitted + longest_delay if longest_delay else 0
        if workload.stale_since is not None:
            graces = [pool.stale_gang_grace for pool in snapshot.pools]
            own = workload.stale_gang_grace
            yield workload.stale_since + max(graces if own is None else [own])


def _hold_change_times(snapshot: Snapshot, with_demand: Sequence[Workload]) -> Iterator[int]:
    delays = {pool.reservation_after for pool in snapshot.pools} - {None}
    if not delays or len(with_demand) < 2:
        return
    expected = {queue.name: queue.expected_runtime or 0 for queue in snapshot.queues}
    for workload in snapshot.workloads:
        if has_pod_in(workload, LIVE_STATES) and not is_finished(workload):
            yield _last_start_time(workload) + (workload.max_runtime or expected[workload.project])
    for workload in with_demand:
        for delay in delays:
            first = workload.submitted + (delay or 0)
            yield first
            end, holds = current_hold_or_pause(max(0, snapshot.now - first))
            yield first + end if holds else 0  # no nodes are held during a pause


def _last_start_time(workload: Workload) -> int:
    return max([workload.started or 0, *(pod.started for pod in workload.pods)])


def _min_runtimes(pool: Pool) -> tuple[int, int]:
    return pool.reclaim_min_runtime, pool.preempt_min_runtime


def _queue_min_runtimes(snapshot: Snapshot) -> Iterator[int]:
    for queue in snapshot.queues:
        yield queue.reclaim_min_runtime or 0
        yield queue.preempt_min_runtime or 0


def _victim_order_settling_time(snapshot: Snapshot) -> float:
    runs = [(pod, _last_save_time(pod, workload)) for workload in snapshot.workloads for pod in workload.pods
            if pod.state in RUNNING_STATES and pod.devices]  # fmt: skip
    if not runs:
        return 0
    # Work lost by stopping a pod grows with its GPUs, so a larger pod eventually overtakes every smaller pod.
    # The order is final after the sum of all current differences, divided by the smallest difference in GPUs.
    latest = max(since for _, since in runs)
    gpus = [pod.milli * len(pod.devices) for pod, _ in runs]
    total_lead = sum(milli * (latest - since) for milli, (_, since) in zip(gpus, runs, strict=True))
    return latest + (total_lead + MILLI * len(runs) * (total_lead > 0)) / math.gcd(*gpus)


def _last_save_time(pod: Pod, workload: Workload) -> int:
    return max(pod.started, workload.started or 0, workload.last_checkpoint or 0)


def _is_usage_changing(pool: Pool, with_demand: Sequence[Workload], before: Snapshot, now: Snapshot) -> bool:
    mode = pool.fair_share
    if not mode.time_based or mode.k <= 0 or not any(pool.name in workload.pools for workload in with_demand):
        return False
    return mode.tumbling or any(
        queue.pool_quotas.get(pool.name) != earlier.pool_quotas.get(pool.name)
        for queue, earlier in zip(now.queues, before.queues, strict=True)
    )
