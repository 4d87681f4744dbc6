"""Release nodes that a pool does not need."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import Q

from berth.db.moves import move
from pools import history
from pools.budgets import allowance_of
from pools.engine.budgets import DisruptionReason
from pools.engine.victims import HEAD
from pools.models import Node, NodePool
from pools.models.node import NodeState
from pools.models.scaling import ScalingKind
from pools.services.pool_values import spec_of

EMPTY, UNDERUTILISED = DisruptionReason.EMPTY, DisruptionReason.UNDERUTILISED
POLICY = NodePool.NodeConsolidation


@dataclass(frozen=True, slots=True)
class Offer:
    """Names of nodes that may be released if their pods fit elsewhere.

    `empty` and `underutilised` are the numbers of nodes of each kind that may be released at once.
    """

    nodes: tuple[str, ...] = ()
    empty: int = 0
    underutilised: int = 0

    def __bool__(self) -> bool:
        return bool(self.nodes and (self.empty or self.underutilised))


def offer(pool: NodePool, now: datetime) -> Offer:
    """Return the releasable nodes; none while the pool is being resized or was resized recently."""
    if pool.node_consolidation == POLICY.NEVER or not _is_stable(pool, now):
        return Offer()
    nodes = list(Node.objects.filter(pool=pool).exclude(state=NodeState.ENDED).order_by("ordinal"))
    if any(node.state not in (NodeState.READY, NodeState.CORDONED) for node in nodes):
        return Offer()
    spare = len(nodes) - max(spec_of(pool).min, 1)
    if len(nodes) != pool.nodes_desired or spare < 1:
        return Offer()
    recently_used = _recently_used(pool, now)
    names = tuple(n.name for n in nodes if _is_releasable(n, pool, now) and n.pk not in recently_used)
    bound = allowance_of(pool, nodes, now)
    moves = pool.node_consolidation == POLICY.WHEN_UNDERUTILISED
    return Offer(names, bound.most(EMPTY, spare), bound.most(UNDERUTILISED, 1) if moves else 0)


def give_back(
    pool_id: int, names: Sequence[str], reason: DisruptionReason, *, because: str, at: datetime
) -> bool:
    """Lower the desired node count and drain these nodes; the caller evicts their pods.

    Returns False, without a change, if the pool no longer offers all of the nodes.
    """
    with transaction.atomic():
        pool = NodePool.objects.select_for_update(no_key=True).get(pk=pool_id)
        nodes = _locked_nodes(pool, names)
        offered = offer(pool, at)
        limit = offered.empty if reason is EMPTY else offered.underutilised
        if not 0 < len(names) <= limit or not set(names) <= set(offered.nodes):
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
            pool, ScalingKind.AUTOSCALE, because, at=at, before=before, after=pool.nodes_desired, rule=reason,
            nodes=list(names),
        )  # fmt: skip
        for node in nodes:
            _drain(node, pool, because, at)
    return True


def _have_allocations(nodes: Sequence[Node]) -> bool:
    allocated = Q(allocations__isnull=False, allocations__released_at__isnull=True)
    return Node.objects.filter(allocated, pk__in=[node.pk for node in nodes]).exists()


def _is_stable(pool: NodePool, now: datetime) -> bool:
    """Return True if the pool is elastic, operational and was not resized recently."""
    expired = pool.expires_at is not None and now >= pool.expires_at
    if pool.paused or expired or not pool.elastic or pool.operational_since is None or pool.provisioning:
        return False
    quiet_seconds = max(pool.node_consolidation_after, pool.autoscale_cooldown)
    return pool.last_scaled_at is None or not 0 <= (now - pool.last_scaled_at).total_seconds() < quiet_seconds


def _is_releasable(node: Node, pool: NodePool, now: datetime) -> bool:
    """Return True if the node may be released. A cordoned node stays, because an admin reserved it."""
    rested = (now - node.since).total_seconds() >= pool.node_consolidation_after
    return node.ordinal != HEAD and node.state == NodeState.READY and rested


def _recently_used(pool: NodePool, now: datetime) -> Collection[int]:
    """Return ids of nodes with recent allocations, whose rows belong to a higher layer."""
    since = now - timedelta(seconds=pool.node_consolidation_after)
    began_or_ended = Q(allocations__bound_at__gt=since) | Q(allocations__released_at__gt=since)
    rows = Node.objects.filter(began_or_ended, pool=pool).exclude(state=NodeState.ENDED)
    return set(rows.order_by().values_list("pk", flat=True))


def _locked_nodes(pool: NodePool, names: Sequence[str]) -> list[Node]:
    """Return the nodes, locked because a user may drain one of them."""
    rows = Node.objects.select_for_update(of=("self",)).filter(pool=pool, name__in=names)
    return list(rows.exclude(state=NodeState.ENDED).order_by("-ordinal"))


def _drain(node: Node, pool: NodePool, reason: str, at: datetime) -> None:
    begun = {
        "drain_started_at": at, "drain_reason": reason[:255], "drained_by_scaling": True, "emptied_at": None,
    }  # fmt: skip
    drained = move(node, "state", expected=(NodeState.READY,), to=NodeState.DRAINING, since=at, **begun)
    assert drained, "the node is locked and was ready"
    history.write(pool, ScalingKind.DRAIN, reason, at=at, node=node, after=pool.nodes_desired)
