"""Terminate nodes that are lost or drained."""

from collections.abc import Sequence

from django.db.models import Q

from pools import history
from pools.models import Node, NodePool
from pools.models.node import NodeState
from pools.models.scaling import ScalingKind
from pools.providers.base import ProviderError
from pools.reconciler.rows import Pass, locked, record_error

DONE = Q(state=NodeState.LOST) | Q(state=NodeState.DRAINING, emptied_at__isnull=False)


def terminate_done(pool_id: int, this: Pass) -> bool:
    """End lost and drained nodes and terminate their instances. Return True if there were any.

    Rows are written first. An instance that survives has no node, so the next listing terminates it again.
    """
    if not Node.objects.filter(DONE, pool_id=pool_id).exists():
        return False
    with this.fence():
        pool = locked(pool_id)
        done = _end_rows(pool, this)
    if done:
        terminate(pool, [node.instance_id for node in done], this)
    return bool(done)


def terminate(pool: NodePool, instance_ids: Sequence[str], this: Pass) -> None:
    """Terminate the instances. A failure is recorded, and the next listing retries the termination."""
    try:
        this.provider.terminate(pool.name, instance_ids)
    except ProviderError as error:
        with this.fence():
            record_error(locked(pool.pk), f"terminate {', '.join(instance_ids)}", error, this.now)


def _end_rows(pool: NodePool, this: Pass) -> list[Node]:
    """End the rows, highest ordinals first. The lock excludes nodes whose drain was just reverted."""
    rows = Node.objects.select_for_update(of=("self",), no_key=True).filter(DONE, pool=pool)
    done = list(rows.order_by("-ordinal"))
    ended = {"state": NodeState.ENDED, "since": this.now, "ended_at": this.now}
    Node.objects.filter(pk__in=[node.pk for node in done]).update(**ended)
    reasons = [(node, f"drained: {node.drain_reason}" if node.emptied_at else "lost") for node in done]
    history.write_each(pool, ScalingKind.TERMINATE, reasons, at=this.now)
    return done
