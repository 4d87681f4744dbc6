"""Terminate nodes that are lost or drained."""

from collections.abc import Sequence

from django.db.models import Q

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
        done = _end_rows(pool, this)
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


def _end_rows(pool: NodePool, this: Pass) -> list[Node]:
    """The newest first. Judged under lock: not one that was taken back since we looked."""
    rows = Node.objects.select_for_update(of=("self",), no_key=True).filter(DONE, pool=pool)
    done = list(rows.order_by("-ordinal"))
    ended = {"state": NodeState.ENDED, "since": this.now, "ended_at": this.now}
    Node.objects.filter(pk__in=[node.pk for node in done]).update(**ended)
    told = [(node, f"drained: {node.drain_reason}" if node.emptied_at else "lost") for node in done]
    history.write_each(pool, ScalingKind.TERMINATE, told, at=this.now)
    return done
