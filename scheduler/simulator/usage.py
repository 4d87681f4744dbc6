"""Charge usage to queues in a simulation."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from berth.core.amounts import NOTHING, Amounts, Bounds
from scheduler.engine.model import NodeState, Pool, Queue, Snapshot, Workload
from scheduler.engine.plan import Plan
from scheduler.simulator.gangs import CHARGED, held_by
from scheduler.simulator.usage_history import History, Rates

COUNTED = (NodeState.READY, NodeState.BOOTING)


def allocated(snapshot: Snapshot) -> Mapping[tuple[str, str], Amounts]:
    """Return allocations by (pool, queue). A project's allocations count for its department as well."""
    pools = {node.name: node.pool for node in snapshot.nodes}
    above = {queue.name: queue.parent for queue in snapshot.queues}
    held: dict[tuple[str, str], Amounts] = {}
    for workload in snapshot.workloads:
        for pool, amounts in _held_in(workload, pools):
            name: str | None = workload.project
            while name is not None:
                held[pool, name] = held.get((pool, name), NOTHING).plus(amounts)
                name = above.get(name)
    return held


class Meter:
    """Usage history of every queue in pools with time-based fair share."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.pools = {pool.name: pool for pool in snapshot.pools if pool.fair_share.time_based}
        self.histories = {
            (pool.name, queue.name): History.of(
                pool.fair_share, queue.entitlements[pool.name].usage, snapshot.now
            )
            for pool in self.pools.values()
            for queue in snapshot.queues
            if pool.name in queue.entitlements
        }

    def passes(self, before: Snapshot, plan: Plan, until: int) -> None:
        """Charge the allocations after a plan for the time until the next cycle."""
        if not self.histories:
            return
        held = allocated(before)
        shares = {(report.pool, report.queue): report.share for report in plan.queues}
        capacity = {name: _capacity(before, pool) for name, pool in self.pools.items()}
        for queue in before.queues:
            for pool in self.pools.values():
                if (history := self.histories.get((pool.name, queue.name))) is None:
                    continue
                whole = capacity[pool.name]
                if queue.parent is not None:
                    whole = shares.get((pool.name, queue.parent), NOTHING)
                own = held.get((pool.name, queue.name), NOTHING)
                history.passes(before.now, until, Rates(_charged(pool, queue, own), _as_floats(whole)))

    def written(self, queues: Sequence[Queue]) -> tuple[Queue, ...]:
        """Return the queues with their current usage."""
        if not self.histories:
            return tuple(queues)
        return tuple(
            replace(
                queue,
                entitlements={
                    pool: replace(entitlement, usage=self.histories[pool, queue.name].usage)
                    if (pool, queue.name) in self.histories
                    else entitlement
                    for pool, entitlement in queue.entitlements.items()
                },
            )
            for queue in queues
        )


def _held_in(workload: Workload, pools: Mapping[str, str]) -> Iterable[tuple[str, Amounts]]:
    charged = [pod for pod in workload.pods if pod.state in CHARGED and pod.node in pools]
    for pool in sorted({pools[pod.node] for pod in charged}):
        yield pool, held_by(workload, [pod for pod in charged if pools[pod.node] == pool])


def _capacity(snapshot: Snapshot, pool: Pool) -> Amounts:
    total = NOTHING
    for node in snapshot.nodes:
        if node.pool == pool.name and node.state in COUNTED:
            total = total.plus(node.capacity)
    return total


def _charged(pool: Pool, queue: Queue, held: Amounts) -> tuple[float, float, float]:
    if pool.fair_share.count_all:
        return _as_floats(held)
    quota: Bounds = queue.entitlements[pool.name].quota
    beyond = (
        0.0 if bound is None else float(max(0, amount - bound))
        for amount, bound in zip(held, quota, strict=True)
    )
    gpu, cpu, memory = beyond
    return gpu, cpu, memory


def _as_floats(amounts: Amounts) -> tuple[float, float, float]:
    return float(amounts.gpu), float(amounts.cpu), float(amounts.memory_mib)
