"""Charge usage to queues in a simulation."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from berth.core.values.amounts import NO_RESOURCES, Amounts, Bounds
from scheduler.engine.layout.quota_groups import remaining_pool_quota
from scheduler.engine.model import NodeState, Pool, Queue, Snapshot, Workload
from scheduler.engine.plan import Plan
from scheduler.simulator.gangs import CHARGED_STATES, allocated_amounts
from scheduler.simulator.usage_history import AllocationRates, UsageHistory

COUNTED_NODE_STATES = (NodeState.READY, NodeState.BOOTING)


def allocated_by_queue(snapshot: Snapshot) -> Mapping[tuple[str, str], Amounts]:
    """Return allocations by (pool, queue). A project's allocations also count for its department."""
    pools = {node.name: node.pool for node in snapshot.nodes}
    parents = {queue.name: queue.parent for queue in snapshot.queues}
    allocations: dict[tuple[str, str], Amounts] = {}
    for workload in snapshot.workloads:
        for pool, amounts in _allocated_by_pool(workload, pools):
            name: str | None = workload.project
            while name is not None:
                allocations[pool, name] = allocations.get((pool, name), NO_RESOURCES).plus(amounts)
                name = parents.get(name)
    return allocations


class UsageMeter:
    """Usage history of every queue in pools with time-based fair share."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.pools = {pool.name: pool for pool in snapshot.pools if pool.fair_share.time_based}
        self.histories = {
            (pool.name, queue.name): UsageHistory.start(
                pool.fair_share, queue.pool_quotas[pool.name].usage, snapshot.now
            )
            for pool in self.pools.values()
            for queue in snapshot.queues
            if pool.name in queue.pool_quotas
        }

    def advance(self, before: Snapshot, plan: Plan, until: int) -> None:
        """Charge the queues for the allocations in `before`, for the time until the next cycle."""
        if not self.histories:
            return
        allocations = allocated_by_queue(before)
        shares = {(report.pool, report.queue): report.share for report in plan.queues}
        capacity = {name: _capacity(before, pool) for name, pool in self.pools.items()}
        for queue in before.queues:
            for pool in self.pools.values():
                if (history := self.histories.get((pool.name, queue.name))) is None:
                    continue
                parent = capacity[pool.name]
                if queue.parent is not None:
                    parent = shares.get((pool.name, queue.parent), NO_RESOURCES)
                own = allocations.get((pool.name, queue.name), NO_RESOURCES)
                charged = _charged_amounts(pool, _remaining_quota(queue, pool.name, allocations), own)
                history.advance(before.now, until, AllocationRates(charged, _to_floats(parent)))

    def with_usage(self, queues: Sequence[Queue]) -> tuple[Queue, ...]:
        """Return the queues with their current usage."""
        if not self.histories:
            return tuple(queues)
        return tuple(
            replace(
                queue,
                pool_quotas={
                    pool: replace(pool_quota, usage=self.histories[pool, queue.name].usage)
                    if (pool, queue.name) in self.histories
                    else pool_quota
                    for pool, pool_quota in queue.pool_quotas.items()
                },
            )
            for queue in queues
        )


def _allocated_by_pool(workload: Workload, pools: Mapping[str, str]) -> Iterable[tuple[str, Amounts]]:
    charged = [pod for pod in workload.pods if pod.state in CHARGED_STATES and pod.node in pools]
    for pool in sorted({pools[pod.node] for pod in charged}):
        yield pool, allocated_amounts(workload, [pod for pod in charged if pools[pod.node] == pool])


def _capacity(snapshot: Snapshot, pool: Pool) -> Amounts:
    total = NO_RESOURCES
    for node in snapshot.nodes:
        if node.pool == pool.name and node.state in COUNTED_NODE_STATES:
            total = total.plus(node.capacity)
    return total


def _remaining_quota(queue: Queue, pool: str, allocations: Mapping[tuple[str, str], Amounts]) -> Bounds:
    """Return the quota in a pool minus the allocations in other pools of its group."""
    pool_quota, elsewhere = queue.pool_quotas[pool], NO_RESOURCES
    for other, others_pool_quota in queue.pool_quotas.items() if pool_quota.group else ():
        if other != pool and others_pool_quota.group == pool_quota.group:
            elsewhere = elsewhere.plus(allocations.get((other, queue.name), NO_RESOURCES))
    return remaining_pool_quota(pool_quota, elsewhere).quota


def _charged_amounts(pool: Pool, quota: Bounds, allocations: Amounts) -> tuple[float, float, float]:
    if pool.fair_share.count_all:
        return _to_floats(allocations)
    over_quota = (
        0.0 if bound is None else float(max(0, amount - bound))
        for amount, bound in zip(allocations, quota, strict=True)
    )
    gpu, cpu, memory = over_quota
    return gpu, cpu, memory


def _to_floats(amounts: Amounts) -> tuple[float, float, float]:
    return float(amounts.gpu), float(amounts.cpu), float(amounts.memory_mib)
