"""Reduce group quotas by what is allocated in pools that are left out of a decision."""

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import replace

from scheduler.engine.board.gang import LIVE_STATES, leaf_roles
from scheduler.engine.layout.layout import reservations_by_workload
from scheduler.engine.layout.quota_groups import Sums, remaining_pool_quota, sum_amounts
from scheduler.engine.model import PodState, Queue, Snapshot

ALLOCATED_STATES = (*LIVE_STATES, PodState.STUCK)


def with_reduced_group_quotas(snapshot: Snapshot, pools: Collection[str]) -> tuple[Queue, ...]:
    """Return the queues, with the group quotas of other pools reduced by the allocations in `pools`."""
    if not any(pool_quota.group for queue in snapshot.queues for pool_quota in queue.pool_quotas.values()):
        return snapshot.queues
    used = _allocated_by_queue(snapshot, pools)
    return tuple(
        replace(
            queue,
            pool_quotas={
                pool: remaining_pool_quota(pool_quota, used[queue.name, pool_quota.group])
                if pool_quota.group and pool not in pools
                else pool_quota
                for pool, pool_quota in queue.pool_quotas.items()
            },
        )
        for queue in snapshot.queues
    )


def _allocated_by_queue(snapshot: Snapshot, pools: Collection[str]) -> Mapping[tuple[str, str], Sums]:
    """Return the allocations in `pools`, keyed by queue and quota group."""
    queues = {queue.name: queue for queue in snapshot.queues}
    pool_of = {node.name: node.pool for node in snapshot.nodes if node.pool in pools}
    placed = reservations_by_workload(snapshot)
    result: dict[tuple[str, str], Sums] = defaultdict(lambda: [0, 0, 0])
    for workload in snapshot.workloads:
        roles = {role.name: role.request for role in leaf_roles(workload.tree)}
        pods = [pod for pod in workload.pods if pod.state in ALLOCATED_STATES]
        for pod in (*pods, *placed.get(workload.name, ())):
            pool = pool_of.get(pod.node)
            if pool is None or pod.role not in roles:
                continue
            request = roles[pod.role]
            amounts = (pod.milli * len(pod.devices), request.cpu, request.memory_mib)
            queue = queues.get(workload.project)
            while queue is not None:
                pool_quota = queue.pool_quotas.get(pool)
                if pool_quota is not None and pool_quota.group:
                    key = queue.name, pool_quota.group
                    result[key] = sum_amounts((result[key], amounts))
                queue = queues.get(queue.parent or "")
    return result
