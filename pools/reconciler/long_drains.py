"""Report overdue drains, once each."""

from collections.abc import Iterable
from datetime import timedelta

from pools import history
from pools.models import Node, NodePool, ScalingEvent
from pools.models.node import NodeState
from pools.models.scaling import ScalingKind
from pools.reconciler.rows import Pass

MARGIN = timedelta(minutes=10)


def note(pool: NodePool, nodes: Iterable[Node], this: Pass) -> bool:
    """Record overdue drains once each: a drain waits indefinitely for non-preemptible pods."""
    wrote = False
    limit = timedelta(seconds=pool.drain_timeout) + MARGIN
    for node in nodes:
        if node.state != NodeState.DRAINING or node.emptied_at or node.drain_started_at is None:
            continue
        if this.now >= node.drain_started_at + limit and not _is_recorded(pool, node):
            took = (this.now - node.drain_started_at).total_seconds()
            reason = f"draining for {took:.0f} s; pods are still running"
            begun = node.drain_started_at.isoformat()
            history.write(pool, ScalingKind.DRAIN, reason, at=this.now, node=node, overdue=True, begun=begun)
            wrote = True
    return wrote


def _is_recorded(pool: NodePool, node: Node) -> bool:
    assert node.drain_started_at is not None
    begun = node.drain_started_at.isoformat()
    return ScalingEvent.objects.filter(pool=pool, node=node, data__overdue=True, data__begun=begun).exists()
