"""Preview the nodes that leave at a smaller size, and those a budget protects."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from pools import selectors
from pools.budgets import allowance_of, told
from pools.engine.budgets import Allowance, DisruptionReason
from pools.engine.reconciler import surplus
from pools.engine.victims import NONE, Work, allowed, reason_of
from pools.lost_work import work_to_lose
from pools.models import Node, NodePool
from pools.models.node import NodeState
from pools.reconciler.rows import fleet_of, living

PHRASES = {
    DisruptionReason.EMPTY: ("empty", "Empty nodes"),
    DisruptionReason.UNDERUTILISED: ("underutilized", "Underutilized nodes"),
}
POLICY = NodePool.NodeConsolidation


@dataclass(frozen=True, slots=True)
class NodeToDrain:
    """`blocked_by`: the budget that keeps it for now, in words; empty where it goes at once."""

    node: Node
    work: Work
    on_it: Sequence[selectors.WorkOnNode]
    blocked_by: str = ""

    def __str__(self) -> str:
        runs = "; ".join(map(str, self.on_it)) or "no workloads"
        return f"{self.node.name}: {runs}" + (f" (blocked: {self.blocked_by})" if self.blocked_by else "")


def draining(pool: NodePool, desired: int, now: datetime) -> tuple[NodeToDrain, ...]:
    """In the order in which they would go; those that are on their way already come first."""
    nodes, work = living(pool.pk), work_to_lose(now, pool)
    by_ordinal = {node.ordinal: node for node in nodes}
    fleet = fleet_of(pool, nodes, now).with_desired(desired)
    back = max(0, desired - len(fleet.current))
    going = tuple(sorted(fleet.draining, reverse=True))[: max(0, len(fleet.draining) - back)]
    lost = {node.ordinal: work[node.pk] for node in nodes if node.pk in work}
    chosen = surplus(fleet, lost)
    bound = allowance_of(pool, nodes, now)
    _, held = allowed(chosen, lost, bound)
    on_them = selectors.work_on([by_ordinal[ordinal].pk for ordinal in (*going, *chosen)])
    return tuple(
        NodeToDrain(
            by_ordinal[ordinal],
            lost.get(ordinal, NONE),
            on_them[by_ordinal[ordinal].pk],
            _budget(bound, reason_of(lost.get(ordinal, NONE)), now) if ordinal in held else "",
        )
        for ordinal in (*going, *chosen)
    )


def blocked_reasons(pool: NodePool, now: datetime) -> tuple[str, ...]:
    """What the pool would do and a budget forbids, as sentences. Costs nothing where there is no budget."""
    if not pool.disruption_budgets or pool.paused:
        return ()
    nodes = living(pool.pk)
    bound, found = allowance_of(pool, nodes, now), []
    if pool.nodes_desired < sum(node.state in (NodeState.READY, NodeState.CORDONED) for node in nodes):
        kept = [each for each in draining(pool, pool.nodes_desired, now) if each.blocked_by]
        for reason in DisruptionReason:
            many = sum(reason_of(each.work) is reason for each in kept)
            if many:
                which = f"{many} {PHRASES[reason][0]} node{'s' * (many != 1)}"
                found.append(f"{which} cannot be drained yet: {_budget(bound, reason, now)}.")
    for reason in _given_back(pool):
        if not bound.allows(reason):
            found.append(f"{PHRASES[reason][1]} cannot be removed yet: {_budget(bound, reason, now)}.")
    return tuple(found)


def _given_back(pool: NodePool) -> tuple[DisruptionReason, ...]:
    by_policy = {
        POLICY.WHEN_EMPTY: (DisruptionReason.EMPTY,),
        POLICY.WHEN_UNDERUTILISED: tuple(DisruptionReason),
    }
    return by_policy.get(POLICY(pool.node_consolidation), ())


def _budget(bound: Allowance, reason: DisruptionReason, now: datetime) -> str:
    return told(bound.by[reason], now)
