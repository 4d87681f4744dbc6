"""Store a pool's next step: drains, cancelled drains or a launch request."""

import uuid
from collections.abc import Iterable, Mapping, Sequence

from berth.db.writes.moves import compare_and_set, compare_and_set_all
from pools import history
from pools.budgets import drain_allowance
from pools.engine import reconciler as decisions
from pools.engine.victims import LostWork
from pools.models import Node, NodePool
from pools.models.node import PENDING, USABLE, NodeState
from pools.models.scaling import ScalingKind
from pools.reconciler.rows import ReconcileContext, build_fleet, load_live_nodes, lock_pool
from pools.services.nodes import DRAIN_RESET
from pools.services.pressure import autoscale, would_change_node_count
from pools.services.readiness import has_readiness_changed, record_readiness


def take_step(
    pool: NodePool, nodes: Sequence[Node], context: ReconcileContext, work_to_lose: Mapping[int, LostWork]
) -> bool:
    """Take the pool's next step if one is due. Return whether rows changed.

    `nodes` are the pool's nodes that had not ended when they were last read.
    """
    due = would_change_node_count(pool, nodes, context.now) or has_readiness_changed(pool, nodes)
    if not due and not _next_commands(pool, nodes, context, work_to_lose):
        return False
    with context.fence():
        pool, nodes = lock_pool(pool.pk), load_live_nodes(pool.pk)
        has_changed = autoscale(pool, nodes, context.now)
        has_changed |= record_readiness(pool, nodes, context.now)
        for command in _next_commands(pool, nodes, context, work_to_lose):
            _apply_command(command, pool, {node.ordinal: node for node in nodes}, context)
            has_changed = True
    return has_changed


def _next_commands(
    pool: NodePool, nodes: Iterable[Node], context: ReconcileContext, work_to_lose: Mapping[int, LostWork]
) -> tuple[decisions.Command, ...]:
    nodes = tuple(nodes)
    fleet = build_fleet(pool, nodes, context.now)
    by_ordinal: dict[int, LostWork] = {}
    # lost work is computed on demand, because only drains need it
    if fleet.desired < len(fleet.current):
        by_ordinal = {node.ordinal: work_to_lose[node.pk] for node in nodes if node.pk in work_to_lose}
    return decisions.next_step(fleet, by_ordinal, drain_allowance(pool, nodes, context.now)).commands


def _apply_command(
    command: decisions.Command,
    pool: NodePool,
    nodes: Mapping[int, Node],
    context: ReconcileContext,
) -> None:
    match command:
        case decisions.Launch(count, start_ordinal):
            pool.provisioning = {
                "token": uuid.uuid4().hex,
                "count": count,
                "start_ordinal": start_ordinal,
                "since": context.now.isoformat(),
                "pass": context.name,
                "environment": pool.built_environment_id,
            }
            pool.save(update_fields=["provisioning"])
        case decisions.Drain(ordinals):
            _drain_nodes([nodes[ordinal] for ordinal in ordinals], pool, context)
        case decisions.CancelQueuedNodes(ordinals):
            _drain_queued_nodes([nodes[ordinal] for ordinal in ordinals], pool, context)
        case decisions.UndoDrain(ordinals):
            for ordinal in ordinals:
                _undo_drain(nodes[ordinal], pool, context)


def _drain_nodes(nodes: Sequence[Node], pool: NodePool, context: ReconcileContext) -> None:
    reason = f"scaled down to {pool.nodes_desired} nodes"
    draining = {
        "drain_started_at": context.now,
        "drain_reason": reason,
        "drained_by_scaling": True,
        "emptied_at": None,
    }
    moved = compare_and_set_all(
        nodes, "state", expected=USABLE, to=NodeState.DRAINING, since=context.now, **draining
    )
    reasons = [(node, reason) for node in moved]
    history.write_many(pool, ScalingKind.DRAIN, reasons, at=context.now, after=pool.nodes_desired)


def _drain_queued_nodes(nodes: Sequence[Node], pool: NodePool, context: ReconcileContext) -> None:
    """Mark nodes in the provider's queue as drained, so that the next pass terminates them."""
    reason = f"scaled down to {pool.nodes_desired} nodes while in the provider's queue"
    ended = {"drain_started_at": context.now, "drain_reason": reason, "emptied_at": context.now}
    moved = compare_and_set_all(
        nodes, "state", expected=PENDING, to=NodeState.DRAINING, since=context.now, **ended
    )
    reasons = [(node, reason) for node in moved]
    history.write_many(pool, ScalingKind.DRAIN, reasons, at=context.now, after=pool.nodes_desired)


def _undo_drain(node: Node, pool: NodePool, context: ReconcileContext) -> None:
    reason = f"scaled up to {pool.nodes_desired} nodes"
    draining = (NodeState.DRAINING,)
    if compare_and_set(
        node, "state", expected=draining, to=NodeState.READY, since=context.now, **DRAIN_RESET
    ):
        history.write(
            pool, ScalingKind.DRAIN_ABORTED, reason, at=context.now, node=node, after=pool.nodes_desired
        )
