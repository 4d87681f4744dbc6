"""Write the decided step as rows: drains, reverted drains, an order."""

import uuid
from collections.abc import Iterable, Mapping, Sequence

from berth.db.moves import move, move_all
from pools import history
from pools.budgets import allowance_of
from pools.engine import reconciler as decisions
from pools.engine.victims import Work
from pools.models import Node, NodePool
from pools.models.node import USABLE, NodeState
from pools.models.scaling import ScalingKind
from pools.reconciler.rows import Pass, fleet_of, living, locked
from pools.services.nodes import NOT_DRAINING
from pools.services.pressure import autoscale, would_autoscale
from pools.services.readiness import note_readiness, readiness_changes


def take(pool_id: int, this: Pass, work_to_lose: Mapping[int, Work]) -> bool:
    """Take the next step, decided without a lock first. Return True if rows changed."""
    pool, nodes = NodePool.objects.get(pk=pool_id), living(pool_id)
    due = would_autoscale(pool, nodes, this.now) or readiness_changes(pool, nodes)
    if not due and not _step(pool, nodes, this, work_to_lose):
        return False
    with this.fence():
        pool, nodes = locked(pool_id), living(pool_id)
        did = autoscale(pool, nodes, this.now)
        did |= note_readiness(pool, nodes, this.now)
        for command in _step(pool, nodes, this, work_to_lose):
            _begin(command, pool, {node.ordinal: node for node in nodes}, this)
            did = True
    return did


def _step(
    pool: NodePool, nodes: Iterable[Node], this: Pass, work_to_lose: Mapping[int, Work]
) -> tuple[decisions.Order | decisions.Drain | decisions.UndoDrain, ...]:
    nodes = tuple(nodes)
    by_ordinal = {node.ordinal: work_to_lose[node.pk] for node in nodes if node.pk in work_to_lose}
    allowance = allowance_of(pool, nodes, this.now)
    return decisions.next_step(fleet_of(pool, nodes, this.now), by_ordinal, allowance).commands


def _begin(
    command: decisions.Order | decisions.Drain | decisions.UndoDrain,
    pool: NodePool,
    nodes: Mapping[int, Node],
    this: Pass,
) -> None:
    match command:
        case decisions.Order(count, start_ordinal):
            pool.provisioning = {
                "token": uuid.uuid4().hex, "count": count, "start_ordinal": start_ordinal,
                "since": this.now.isoformat(), "pass": this.name, "environment": pool.built_environment_id,
            }  # fmt: skip
            pool.save(update_fields=["provisioning"])
        case decisions.Drain(ordinals):
            _drain([nodes[ordinal] for ordinal in ordinals], pool, this)
        case decisions.UndoDrain(ordinals):
            for ordinal in ordinals:
                _undo_drain(nodes[ordinal], pool, this)


def _drain(nodes: Sequence[Node], pool: NodePool, this: Pass) -> None:
    reason = f"scaled down to {pool.nodes_desired} nodes"
    draining = {
        "drain_started_at": this.now, "drain_reason": reason, "drained_by_scaling": True, "emptied_at": None,
    }  # fmt: skip
    moved = move_all(nodes, "state", expected=USABLE, to=NodeState.DRAINING, since=this.now, **draining)
    reasons = [(node, reason) for node in moved]
    history.write_each(pool, ScalingKind.DRAIN, reasons, at=this.now, after=pool.nodes_desired)


def _undo_drain(node: Node, pool: NodePool, this: Pass) -> None:
    reason = f"scaled up to {pool.nodes_desired} nodes"
    draining = (NodeState.DRAINING,)
    if move(node, "state", expected=draining, to=NodeState.READY, since=this.now, **NOT_DRAINING):
        history.write(
            pool, ScalingKind.DRAIN_ABORTED, reason, at=this.now, node=node, after=pool.nodes_desired
        )
