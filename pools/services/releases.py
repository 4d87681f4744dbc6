"""Release nodes that an elastic pool no longer needs."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import Q

from berth.db.writes.moves import compare_and_set
from pools import history
from pools.budgets import drain_allowance
from pools.engine.budgets import DisruptionReason
from pools.engine.victims import HEAD
from pools.models import Node, NodePool
from pools.models.node import NodeState
from pools.models.scaling import ScalingKind
from pools.services.pool_values import pool_node_spec

EMPTY, UNDERUTILIZED = DisruptionReason.EMPTY, DisruptionReason.UNDERUTILIZED
POLICY = NodePool.NodeConsolidation


@dataclass(frozen=True, slots=True)
class ReleasableNodes:
    """Nodes that a pool may release if their pods fit on other nodes.

    `empty` and `underutilized` limit how many empty and underutilized nodes may be released at the same time.
    """

    nodes: tuple[str, ...] = ()
    empty: int = 0
    underutilized: int = 0

    def __bool__(self) -> bool:
        return bool(self.nodes and (self.empty or self.underutilized))


def releasable_nodes(pool: NodePool, now: datetime) -> ReleasableNodes:
    """Return the nodes that the scheduler may release.

    There are none while the pool is being resized and shortly afterwards.
    """
    if pool.node_consolidation == POLICY.NEVER or not _is_stable(pool, now):
        return ReleasableNodes()
    nodes = list(Node.objects.filter(pool=pool).exclude(state=NodeState.ENDED).order_by("ordinal"))
    if any(node.state not in (NodeState.READY, NodeState.CORDONED) for node in nodes):
        return ReleasableNodes()
    releasable = len(nodes) - max(pool_node_spec(pool).min, 1)
    if len(nodes) != pool.nodes_desired or releasable < 1:
        return ReleasableNodes()
    recently_used = _recently_used_ids(pool, now)
    names = tuple(n.name for n in nodes if _is_releasable(n, pool, now) and n.pk not in recently_used)
    allowance = drain_allowance(pool, nodes, now)
    moves = pool.node_consolidation == POLICY.WHEN_UNDERUTILIZED
    return ReleasableNodes(
        names,
        allowance.limit_count(EMPTY, releasable),
        allowance.limit_count(UNDERUTILIZED, 1) if moves else 0,
    )


def release_pool_nodes(
    pool_id: int, names: Sequence[str], reason: DisruptionReason, *, message: str, at: datetime
) -> bool:
    """Reduce the desired node count and drain the nodes.

    The caller evicts their pods. Return False and change nothing if a node can no longer be released.
    """
    with transaction.atomic():
        pool = NodePool.objects.select_for_update(no_key=True).get(pk=pool_id)
        nodes = _lock_nodes(pool, names)
        releasable = releasable_nodes(pool, at)
        limit = releasable.empty if reason is EMPTY else releasable.underutilized
        if not 0 < len(names) <= limit or not set(names) <= set(releasable.nodes):
            return False
        if reason is EMPTY and _have_allocations(nodes):
            return False
        before, pool.nodes_desired, pool.last_scaled_at = (
            pool.nodes_desired,
            pool.nodes_desired - len(names),
            at,
        )
        pool.save(update_fields=["nodes_desired", "last_scaled_at"])
        history.write(
            pool, ScalingKind.AUTOSCALE, message, at=at, before=before, after=pool.nodes_desired, rule=reason,
            nodes=list(names),
        )  # fmt: skip
        for node in nodes:
            _drain(node, pool, message, at)
    return True


def _have_allocations(nodes: Sequence[Node]) -> bool:
    allocated = Q(allocations__isnull=False, allocations__released_at__isnull=True)
    return Node.objects.filter(allocated, pk__in=[node.pk for node in nodes]).exists()


def _is_stable(pool: NodePool, now: datetime) -> bool:
    """Return whether nodes of the pool may be released now.

    The pool must be elastic and operational, and must not be launching nodes or have been resized recently.
    """
    expired = pool.expires_at is not None and now >= pool.expires_at
    if pool.paused or expired or not pool.is_elastic or pool.operational_since is None or pool.provisioning:
        return False
    quiet_seconds = max(pool.node_consolidation_after, pool.autoscale_cooldown)
    return pool.last_scaled_at is None or not 0 <= (now - pool.last_scaled_at).total_seconds() < quiet_seconds


def _is_releasable(node: Node, pool: NodePool, now: datetime) -> bool:
    """Return whether the node has been ready for long enough, and is neither cordoned nor the head node."""
    is_settled = (now - node.since).total_seconds() >= pool.node_consolidation_after
    return node.ordinal != HEAD and node.state == NodeState.READY and is_settled


def _recently_used_ids(pool: NodePool, now: datetime) -> Collection[int]:
    """Return the IDs of nodes on which a pod was recently placed or has recently ended."""
    since = now - timedelta(seconds=pool.node_consolidation_after)
    # Allocations belong to a higher layer, so this function reads them through the node's relations.
    began_or_ended = Q(allocations__bound_at__gt=since) | Q(allocations__released_at__gt=since)
    rows = Node.objects.filter(began_or_ended, pool=pool).exclude(state=NodeState.ENDED)
    return set(rows.order_by().values_list("pk", flat=True))


def _lock_nodes(pool: NodePool, names: Sequence[str]) -> list[Node]:
    """Lock and return the nodes, because a user may drain a node at the same time."""
    rows = Node.objects.select_for_update(of=("self",)).filter(pool=pool, name__in=names)
    return list(rows.exclude(state=NodeState.ENDED).order_by("-ordinal"))


def _drain(node: Node, pool: NodePool, reason: str, at: datetime) -> None:
    drain_columns = {
        "drain_started_at": at, "drain_reason": reason[:255], "drained_by_scaling": True, "emptied_at": None,
    }  # fmt: skip
    drained = compare_and_set(
        node, "state", expected=(NodeState.READY,), to=NodeState.DRAINING, since=at, **drain_columns
    )
    assert drained, "the node is locked and was ready"
    history.write(pool, ScalingKind.DRAIN, reason, at=at, node=node, after=pool.nodes_desired)
