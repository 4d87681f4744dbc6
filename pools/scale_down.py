"""Preview the nodes that a scale-down would drain, and the nodes that a disruption budget protects."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from pools import selectors
from pools.budgets import describe_budget, drain_allowance
from pools.engine.budgets import Allowance, DisruptionReason
from pools.engine.reconciler import surplus_nodes
from pools.engine.victims import NO_WORK, LostWork, disruption_reason, split_by_budget
from pools.lost_work import lost_work_by_node
from pools.models import Node, NodePool
from pools.models.node import NodeState
from pools.reconciler.rows import build_fleet, load_live_nodes

PHRASES = {
    DisruptionReason.EMPTY: ("empty", "Empty nodes"),
    DisruptionReason.UNDERUTILIZED: ("underutilized", "Underutilized nodes"),
}
POLICY = NodePool.NodeConsolidation


@dataclass(frozen=True, slots=True)
class NodeToDrain:
    """Node that would be drained. `blocked_by` describes the budget that delays the drain, or is empty."""

    node: Node
    work: LostWork
    workloads: Sequence[selectors.NodeWorkload]
    blocked_by: str = ""

    def __str__(self) -> str:
        runs = "; ".join(map(str, self.workloads)) or "no workloads"
        return f"{self.node.name}: {runs}" + (f" (blocked: {self.blocked_by})" if self.blocked_by else "")


def list_nodes_to_drain(pool: NodePool, desired: int, now: datetime) -> tuple[NodeToDrain, ...]:
    """Return the nodes to drain when scaling to `desired` nodes, in order. Draining nodes come first."""
    nodes, work = load_live_nodes(pool.pk), lost_work_by_node(now, pool)
    by_ordinal = {node.ordinal: node for node in nodes}
    fleet = build_fleet(pool, nodes, now).with_desired_nodes(desired)
    returning = max(0, desired - len(fleet.current))
    still_draining = tuple(sorted(fleet.draining, reverse=True))[: max(0, len(fleet.draining) - returning)]
    work_by_ordinal = {node.ordinal: work[node.pk] for node in nodes if node.pk in work}
    chosen = surplus_nodes(fleet, work_by_ordinal)
    allowance = drain_allowance(pool, nodes, now)
    _, blocked_ordinals = split_by_budget(chosen, work_by_ordinal, allowance)
    workloads_by_node = selectors.workloads_on_nodes(
        [by_ordinal[ordinal].pk for ordinal in (*still_draining, *chosen)]
    )
    return tuple(
        NodeToDrain(
            by_ordinal[ordinal],
            work_by_ordinal.get(ordinal, NO_WORK),
            workloads_by_node[by_ordinal[ordinal].pk],
            _describe_budget(allowance, disruption_reason(work_by_ordinal.get(ordinal, NO_WORK)), now)
            if ordinal in blocked_ordinals
            else "",
        )
        for ordinal in (*still_draining, *chosen)
    )


def list_blocked_actions(pool: NodePool, now: datetime) -> tuple[str, ...]:
    """Return a sentence for each action that a budget blocks. Pools without budgets need no query."""
    if not pool.disruption_budgets or pool.paused:
        return ()
    nodes = load_live_nodes(pool.pk)
    allowance, sentences = drain_allowance(pool, nodes, now), []
    if pool.nodes_desired < sum(node.state in (NodeState.READY, NodeState.CORDONED) for node in nodes):
        blocked = [entry for entry in list_nodes_to_drain(pool, pool.nodes_desired, now) if entry.blocked_by]
        for reason in DisruptionReason:
            count = sum(disruption_reason(entry.work) is reason for entry in blocked)
            if count:
                label = f"{count} {PHRASES[reason][0]} node{'s' * (count != 1)}"
                sentences.append(
                    f"{label} cannot be drained yet: {_describe_budget(allowance, reason, now)}."
                )
    for reason in _release_reasons(pool):
        if not allowance.allows(reason):
            sentences.append(
                f"{PHRASES[reason][1]} cannot be removed yet: {_describe_budget(allowance, reason, now)}."
            )
    return tuple(sentences)


def _release_reasons(pool: NodePool) -> tuple[DisruptionReason, ...]:
    by_policy = {
        POLICY.WHEN_EMPTY: (DisruptionReason.EMPTY,),
        POLICY.WHEN_UNDERUTILIZED: tuple(DisruptionReason),
    }
    return by_policy.get(POLICY(pool.node_consolidation), ())


def _describe_budget(allowance: Allowance, reason: DisruptionReason, now: datetime) -> str:
    return describe_budget(allowance.limiting_budgets[reason], now)
