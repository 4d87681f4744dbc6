"""Record drains that take longer than the pool's drain timeout."""

from collections.abc import Iterable
from datetime import timedelta

from pools import history
from pools.models import Node, NodePool, ScalingEvent
from pools.models.node import NodeState
from pools.models.scaling import ScalingKind
from pools.reconciler.rows import ReconcileContext

MARGIN = timedelta(minutes=10)


def record_overdue_drains(pool: NodePool, nodes: Iterable[Node], context: ReconcileContext) -> bool:
    """Record each overdue drain once, and return whether there was one.

    Drains wait indefinitely for non-preemptible pods.
    """
    has_written = False
    limit = timedelta(seconds=pool.drain_timeout) + MARGIN
    for node in nodes:
        if node.state != NodeState.DRAINING or node.emptied_at or node.drain_started_at is None:
            continue
        if context.now >= node.drain_started_at + limit and not _is_recorded(pool, node):
            took = (context.now - node.drain_started_at).total_seconds()
            reason = f"draining for {took:.0f} s; pods are still running"
            begun = node.drain_started_at.isoformat()
            history.write(
                pool, ScalingKind.DRAIN, reason, at=context.now, node=node, overdue=True, begun=begun
            )
            has_written = True
    return has_written


def _is_recorded(pool: NodePool, node: Node) -> bool:
    assert node.drain_started_at is not None
    begun = node.drain_started_at.isoformat()
    return ScalingEvent.objects.filter(pool=pool, node=node, data__overdue=True, data__begun=begun).exists()
