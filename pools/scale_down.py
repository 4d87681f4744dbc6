"""Preview the nodes that a smaller pool would drain, and those that a budget protects."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from pools import selectors
from pools.budgets import allowance_of, describe
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
    """Node to drain; `blocked_by` describes the budget that delays the drain, or is empty."""

    node: Node
    work: Work
    workloads: Sequence[selectors.WorkOnNode]
    blocked_by: str = ""

    def __str__(self) -> str:
        runs = "; ".join(map(str, self.workloads)) or "no workloads"
        return f"{self.node.name}: {runs}" + (f" (blocked: {self.blocked_by})" if self.blocked_by else "")


def draining(pool: NodePool, desired: int, now: datetime) -> tuple[NodeToDrain, ...]:
    """Return the nodes in drain order, starting with those that are already draining."""
    nodes, work = living(pool.pk), work_to_lose(now, pool)
    by_ordinal = {node.ordinal: node for node in nodes}
    fleet = fleet_of(pool, nodes, now).with_desired(desired)
    returning = max(0, desired - len(fleet.current))
    going = tuple(sorted(fleet.draining, reverse=True))[: max(0, len(fleet.draining) - returning)]
    work_by_ordinal = {node.ordinal: work[node.pk] for node in nodes if node.pk in work}
    chosen = surplus(fleet, work_by_ordinal)
    bound = allowance_of(pool, nodes, now)
    _, held = allowed(chosen, work_by_ordinal, bound)
    on_them = selectors.work_on([by_ordinal[ordinal].pk for ordinal in (*going, *chosen)])
    return tuple(
        NodeToDrain(
            by_ordinal[ordinal],
            work_by_ordinal.get(ordinal, NONE),
            on_them[by_ordinal[ordinal].pk],
            _describe_budget(bound, reason_of(work_by_ordinal.get(ordinal, NONE)), now)
            if ordinal in held
            else "",
        )
        for ordinal in (*going, *chosen)
    )


def blocked_reasons(pool: NodePool, now: datetime) -> tuple[str, ...]:
    """Return sentences about actions that a budget blocks. Without budgets, no query is made."""
    if not pool.disruption_budgets or pool.paused:
        return ()
    nodes = living(pool.pk)
    bound, sentences = allowance_of(pool, nodes, now), []
    if pool.nodes_desired < sum(node.state in (NodeState.READY, NodeState.CORDONED) for node in nodes):
        blocked = [each for each in draining(pool, pool.nodes_desired, now) if each.blocked_by]
        for reason in DisruptionReason:
            count = sum(reason_of(each.work) is reason for each in blocked)
            if count:
                which = f"{count} {PHRASES[reason][0]} node{'s' * (count != 1)}"
                sentences.append(f"{which} cannot be drained yet: {_describe_budget(bound, reason, now)}.")
    for reason in _release_reasons(pool):
        if not bound.allows(reason):
            sentences.append(
                f"{PHRASES[reason][1]} cannot be removed yet: {_describe_budget(bound, reason, now)}."
            )
    return tuple(sentences)


def _release_reasons(pool: NodePool) -> tuple[DisruptionReason, ...]:
    by_policy = {
        POLICY.WHEN_EMPTY: (DisruptionReason.EMPTY,),
        POLICY.WHEN_UNDERUTILISED: tuple(DisruptionReason),
    }
    return by_policy.get(POLICY(pool.node_consolidation), ())


def _describe_budget(bound: Allowance, reason: DisruptionReason, now: datetime) -> str:
    return describe(bound.by[reason], now)
