"""Here nodes end: those that are lost, and those that have been drained."""
from collections.abc import Sequence

from django.db.models import Q

from berth.db.moves import move
from pools import history
from pools.models import Node, NodePool
from pools.models.node import NodeState
from pools.models.scaling import ScalingKind
from pools.providers.base import ProviderError
from pools.reconciler.rows import Pass, locked, remember_trouble

DONE = Q(state=NodeState.LOST) | Q(state=NodeState.DRAINING, emptied_at__isnull=False)


def end_the_done(pool_id: int, this: Pass) -> bool:
    """Their rows first. An instance that is not ended then, for whatever reason, has no node any more: the
    next listing shows it, and it is ended again."""
    if not Node.objects.filter(DONE, pool_id=pool_id).exists():
        return False
    with this.fence():
        pool = locked(pool_id)
        candidates = list(Node.objects.filter(DONE, pool=pool).order_by("-ordinal"))
        done = [node for node in candidates if _end(node, pool, this)]
    if done:
        terminate(pool, [node.instance_id for node in done], this)
    return bool(done)


def terminate(pool: NodePool, instance_ids: Sequence[str], this: Pass) -> None:
    """Nobody waits for the outcome, but it is written down."""
    try:
        this.provider.terminate(pool.name, instance_ids)
    except ProviderError as error:
        with this.fence():
            remember_trouble(locked(pool.pk), f"ending {', '.join(instance_ids)}", error, this.now)


def _end(node: Node, pool: NodePool, this: Pass) -> bool:
    """Not a node that was taken back, or is lost, since we looked."""
    was, emptied = node.state, node.emptied_at
    if ended := move(node, "state", expected=(was,), to=NodeState.ENDED, since=this.now, ended_at=this.now):
        reason = f"drained: {node.drain_reason}" if emptied else "lost"
        history.write(pool, ScalingKind.TERMINATE, reason, at=this.now, node=node)
    return ended
