"""Find instances that cost money but are not nodes, and decide when to terminate them.

If an instance has no row, it is terminated after a grace period, in which an admin who has restored an old
database can pause the pool.
"""

from collections.abc import Iterable
from datetime import timedelta

from pools import history
from pools.models import Node, NodePool, ScalingEvent
from pools.models.scaling import ScalingKind
from pools.providers.base import Instance, InstanceState
from pools.reconciler.rows import ReconcileContext

BILLABLE_STATES = (
    InstanceState.QUEUED, InstanceState.BOOTING, InstanceState.READY, InstanceState.STOPPED,
)  # fmt: skip
GRACE = timedelta(seconds=60)


def select_orphans_to_terminate(
    pool: NodePool, nodes: Iterable[Node], listed: Iterable[Instance], context: ReconcileContext
) -> tuple[list[str], bool]:
    """Record orphaned instances. Return the IDs of those to terminate, and whether an event was written."""
    instance_ids = _orphan_ids(pool, nodes, listed)
    if not instance_ids:
        return [], False
    ended = Node.objects.filter(pool=pool, instance_id__in=instance_ids)
    ended_ids = set(ended.values_list("instance_id", flat=True))
    ending, has_written = [], False
    for instance_id in instance_ids:
        if instance_id in ended_ids:
            ending.append(instance_id)
            continue
        is_over, is_recorded = _advance_grace_period(pool, instance_id, context)
        has_written |= is_recorded
        if is_over:
            ending.append(instance_id)
    return ending, has_written


def _orphan_ids(pool: NodePool, nodes: Iterable[Node], listed: Iterable[Instance]) -> list[str]:
    """Return the billable instances without a node, except those of the current launch request."""
    node_ids = {node.instance_id for node in nodes}
    token = pool.provisioning["token"] if pool.provisioning else None
    return [
        instance.instance_id
        for instance in listed
        if instance.state in BILLABLE_STATES
        and instance.instance_id not in node_ids
        and instance.client_token != token
    ]


def _advance_grace_period(pool: NodePool, instance_id: str, context: ReconcileContext) -> tuple[bool, bool]:
    """Record the start or end of an instance's grace period, unless the pool is paused.

    Return whether the grace period is over, and whether an event was written.
    """
    if pool.paused:
        return False, False
    events = ScalingEvent.objects.filter(pool=pool, data__instance=instance_id)
    first = events.filter(kind=ScalingKind.ORPHAN).order_by("pk").first()
    if first is None:
        reason = (
            f"instance {instance_id} has this pool's tags but no node: "
            f"the instance will be terminated in {GRACE.total_seconds():.0f} s"
        )
        history.write(pool, ScalingKind.ORPHAN, reason, at=context.now, instance=instance_id)
        return False, True
    if first.at <= context.now < first.at + GRACE:
        return False, False
    if events.filter(kind=ScalingKind.TERMINATE).exists():
        return True, False
    reason = f"instance {instance_id} still has no node"
    history.write(pool, ScalingKind.TERMINATE, reason, at=context.now, instance=instance_id)
    return True, True
