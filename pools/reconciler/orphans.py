"""Find instances without a node that cost money, and decide when to terminate them.

That of an ended node is ended again at once. One that no row knows at all is told of first and ended after a
grace: whoever has put an old copy of the database in place has that long to pause the pool.
"""

from collections.abc import Iterable
from datetime import timedelta

from pools import history
from pools.models import Node, NodePool, ScalingEvent
from pools.models.scaling import ScalingKind
from pools.providers.base import Instance, InstanceState
from pools.reconciler.rows import Pass

COSTS = (InstanceState.BOOTING, InstanceState.READY, InstanceState.STOPPED)
GRACE = timedelta(seconds=60)


def to_end(
    pool: NodePool, nodes: Iterable[Node], listed: Iterable[Instance], this: Pass
) -> tuple[list[str], bool]:
    """Their ids, and whether anything was written down."""
    strays = _strays(pool, nodes, listed)
    if not strays:
        return [], False
    ended = Node.objects.filter(pool=pool, instance_id__in=strays)
    of_ended = set(ended.values_list("instance_id", flat=True))
    ending, wrote = [], False
    for instance_id in strays:
        if instance_id in of_ended:
            ending.append(instance_id)
            continue
        over, said = _grace_is_over(pool, instance_id, this)
        wrote |= said
        if over:
            ending.append(instance_id)
    return ending, wrote


def _strays(pool: NodePool, nodes: Iterable[Node], listed: Iterable[Instance]) -> list[str]:
    """Not those of the order in flight: its answer will give them their nodes."""
    known = {node.instance_id for node in nodes}
    token = pool.provisioning["token"] if pool.provisioning else None
    return [
        instance.instance_id
        for instance in listed
        if instance.state in COSTS and instance.instance_id not in known and instance.client_token != token
    ]


def _grace_is_over(pool: NodePool, instance_id: str, this: Pass) -> tuple[bool, bool]:
    """A clock that was set back must not lengthen it by years."""
    if pool.paused:
        return False, False
    seen = ScalingEvent.objects.filter(pool=pool, data__instance=instance_id)
    first = seen.filter(kind=ScalingKind.ORPHAN).order_by("pk").first()
    if first is None:
        reason = (
            f"instance {instance_id} has this pool's tags but no node: "
            f"it is terminated after {GRACE.total_seconds():.0f} s"
        )
        history.write(pool, ScalingKind.ORPHAN, reason, at=this.now, instance=instance_id)
        return False, True
    if first.at <= this.now < first.at + GRACE:
        return False, False
    if seen.filter(kind=ScalingKind.TERMINATE).exists():
        return True, False
    reason = f"instance {instance_id} still has no node"
    history.write(pool, ScalingKind.TERMINATE, reason, at=this.now, instance=instance_id)
    return True, True
