"""Cordon, uncordon, drain and terminate nodes."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import transaction
from django.db.models import Q, QuerySet
from django.utils import timezone

from berth.core.errors import Conflict
from berth.db.moves import move
from pools import history
from pools.models import Node
from pools.models.node import ALIVE, PENDING, USABLE, NodeState
from pools.models.scaling import ScalingKind
from pools.providers.base import Interruption
from pools.signals import changed

NOT_DRAINING: dict[str, Any] = {
    "drain_started_at": None, "drain_reason": "", "drained_by_scaling": False, "emptied_at": None,
    "interruption_at": None,
}  # fmt: skip


def cordon_node(*, acting: Any, node: Node, reason: str = "") -> None:
    """Cordon a ready node: it keeps its pods but accepts no new ones. Raises Conflict."""
    cordon = _Change("cordon", ScalingKind.CORDON, (NodeState.READY,), NodeState.CORDONED)
    _apply(cordon, acting=acting, node=node, reason=reason)


def uncordon_node(*, acting: Any, node: Node) -> None:
    """Return a cordoned or draining node to service. Raises Conflict."""
    idle = (NodeState.CORDONED, NodeState.DRAINING)
    uncordon = _Change("uncordon", ScalingKind.UNCORDON, idle, NodeState.READY)
    _apply(uncordon, acting=acting, node=node, **NOT_DRAINING)


def drain_node(*, acting: Any, node: Node, reason: str = "") -> None:
    """Let the node finish its pods within the pool's drain timeout, then end it; the pool replaces it.

    Raises Conflict.
    """
    drain = _Change("drain", ScalingKind.DRAIN, USABLE, NodeState.DRAINING)
    begun = {"drain_started_at": timezone.now(), "drain_reason": reason[:255]}
    _apply(drain, acting=acting, node=node, reason=reason, **(NOT_DRAINING | begun))


def terminate_node(*, acting: Any, node: Node, reason: str = "") -> None:
    """End the node and its pods at once; the pool replaces it. Raises Conflict."""
    living = tuple(state for state in ALIVE if state != NodeState.LOST)
    terminate = _Change("terminate", ScalingKind.TERMINATE, living, NodeState.LOST)
    _apply(terminate, acting=acting, node=node, reason=reason)


def node_emptied(node: Node, *, at: datetime | None = None) -> bool:
    """Record that no pod runs on a draining node, so that it can be ended.

    Returns False, without a change, if the node is not draining.
    """
    draining = Node.objects.filter(pk=node.pk, state=NodeState.DRAINING, emptied_at=None)
    return draining.update(emptied_at=at or timezone.now()) == 1


def nodes_emptied(nodes: QuerySet[Node], *, at: datetime) -> int:
    """Record that no pods run on these draining nodes, in one statement. Return the number newly recorded."""
    return nodes.filter(state=NodeState.DRAINING, emptied_at=None).update(emptied_at=at)


def interrupt_node(node: Node, interruption: Interruption, *, at: datetime) -> bool:
    """Drain a node whose machine is being taken back. A node that is not ready yet is lost instead.

    The node does not return to service. Returns False if the interruption was already recorded.
    """
    reason, ends_at = interruption.reason, interruption.at
    with transaction.atomic():
        if node.state in PENDING:
            recorded = move(node, "state", expected=PENDING, to=NodeState.LOST, since=at)
        elif node.state == NodeState.DRAINING:
            unrecorded = Q(drained_by_scaling=True)
            if ends_at is not None:
                unrecorded |= Q(interruption_at=None)
            draining = Node.objects.filter(unrecorded, pk=node.pk, state=NodeState.DRAINING)
            recorded = (
                draining.update(interruption_at=ends_at, drain_reason=reason, drained_by_scaling=False) == 1
            )
        else:
            begun = {"drain_started_at": at, "drain_reason": reason[:255], "interruption_at": ends_at}
            recorded = move(
                node, "state", expected=USABLE, to=NodeState.DRAINING, since=at, **(NOT_DRAINING | begun)
            )
        if recorded:
            text = ends_at.isoformat() if ends_at else None
            history.write(node.pool, ScalingKind.INTERRUPTION, reason, at=at, node=node, interruption_at=text)
    return recorded


@dataclass(frozen=True, slots=True)
class _Change:
    action: str
    kind: ScalingKind
    expected: tuple[NodeState, ...]
    to: NodeState


def _apply(change: _Change, *, acting: Any, node: Node, reason: str = "", **also: Any) -> None:
    now = timezone.now()
    with transaction.atomic():
        before = node.state
        if not move(node, "state", expected=change.expected, to=change.to, since=now, **also):
            node.refresh_from_db()
            raise Conflict(f"Cannot {change.action} node {node.name}: it is {node.state}.")
        text = f"{change.action} by {acting.name}" + (f": {reason}" if reason else "")
        history.write(node.pool, change.kind, text, at=now, node=node)
        changed.send(
            Node,
            acting=acting,
            action=change.action,
            obj=node,
            before={"state": str(before)},
            after={"state": str(change.to), "reason": reason},
        )
