"""Terminate the instances of nodes that are lost or drained."""

from collections.abc import Iterable, Sequence

from django.db.models import Q

from pools import history
from pools.models import Node, NodePool
from pools.models.node import NodeState
from pools.models.scaling import ScalingKind
from pools.providers.base import ProviderError
from pools.reconciler.rows import ReconcileContext, lock_pool, record_error

FINISHED = Q(state=NodeState.LOST) | Q(state=NodeState.DRAINING, emptied_at__isnull=False)


def terminate_finished_nodes(pool: NodePool, nodes: Iterable[Node], context: ReconcileContext) -> bool:
    """Mark lost and drained nodes as ended, then terminate their instances.

    Return whether there were any such nodes. `nodes` are the pool's live nodes as they were last read. A
    failed termination is repeated after the next listing.
    """
    if not any(_is_finished(node) for node in nodes):
        return False
    with context.fence():
        pool = lock_pool(pool.pk)
        done = _mark_nodes_ended(pool, context)
    if done:
        terminate(pool, [node.instance_id for node in done], context)
    return bool(done)


def _is_finished(node: Node) -> bool:
    drained = node.state == NodeState.DRAINING and node.emptied_at is not None
    return drained or node.state == NodeState.LOST


def terminate(pool: NodePool, instance_ids: Sequence[str], context: ReconcileContext) -> None:
    """Terminate the instances. If that fails, record the error. The next pass that lists the instances tries
    again.
    """
    try:
        context.provider.terminate(pool.name, instance_ids)
    except ProviderError as error:
        with context.fence():
            record_error(lock_pool(pool.pk), f"terminate {', '.join(instance_ids)}", error, context.now)


def _mark_nodes_ended(pool: NodePool, context: ReconcileContext) -> list[Node]:
    """Mark finished nodes as ended and return them, highest ordinals first.

    They are read again under a lock, because a drain may have been cancelled.
    """
    rows = Node.objects.select_for_update(of=("self",), no_key=True).filter(FINISHED, pool=pool)
    done = list(rows.order_by("-ordinal"))
    ended = {"state": NodeState.ENDED, "since": context.now, "ended_at": context.now}
    Node.objects.filter(pk__in=[node.pk for node in done]).update(**ended)
    reasons = [(node, f"drained: {node.drain_reason}" if node.emptied_at else "lost") for node in done]
    history.write_many(pool, ScalingKind.TERMINATE, reasons, at=context.now)
    return done
