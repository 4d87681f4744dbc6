"""Cordon, uncordon, drain and terminate nodes."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import transaction
from django.db.models import Q, QuerySet
from django.utils import timezone

from berth.core.errors import Conflict
from berth.db.writes.moves import compare_and_set
from pools import history
from pools.models import Node
from pools.models.node import ALIVE, PENDING, USABLE, NodeState
from pools.models.scaling import ScalingKind
from pools.providers.base import Interruption
from pools.signals import changed

DRAIN_RESET: dict[str, Any] = {
    "drain_started_at": None, "drain_reason": "", "drained_by_scaling": False, "emptied_at": None,
    "interruption_at": None,
}  # fmt: skip


def cordon_node(*, actor: Any, node: Node, reason: str = "") -> None:
    """Cordon a node, so that it accepts no new pods. Running pods continue.

    Raises Conflict unless the node is ready.
    """
    cordon = _NodeChange("cordon", ScalingKind.CORDON, (NodeState.READY,), NodeState.CORDONED)
    _apply(cordon, actor=actor, node=node, reason=reason)


def uncordon_node(*, actor: Any, node: Node) -> None:
    """Uncordon a node or cancel its drain. Raises Conflict unless the node is cordoned or draining."""
    expected_states = (NodeState.CORDONED, NodeState.DRAINING)
    uncordon = _NodeChange("uncordon", ScalingKind.UNCORDON, expected_states, NodeState.READY)
    _apply(uncordon, actor=actor, node=node, **DRAIN_RESET)


def drain_node(*, actor: Any, node: Node, reason: str = "") -> None:
    """Drain a node, and terminate and replace it once it has no pods left.

    After the drain timeout, preemptible workloads are evicted. Raises Conflict if the node's state does not
    allow a drain.
    """
    drain = _NodeChange("drain", ScalingKind.DRAIN, USABLE, NodeState.DRAINING)
    drain_columns = {"drain_started_at": timezone.now(), "drain_reason": reason[:255]}
    _apply(drain, actor=actor, node=node, reason=reason, **(DRAIN_RESET | drain_columns))


def terminate_node(*, actor: Any, node: Node, reason: str = "") -> None:
    """Terminate a node and its pods immediately. The pool replaces it.

    Raises Conflict if the node's state does not allow termination.
    """
    live_states = tuple(state for state in ALIVE if state != NodeState.LOST)
    terminate = _NodeChange("terminate", ScalingKind.TERMINATE, live_states, NodeState.LOST)
    _apply(terminate, actor=actor, node=node, reason=reason)


def mark_node_emptied(node: Node, *, at: datetime | None = None) -> bool:
    """Record that a draining node has no pods left and can be terminated.

    Return False if the node is not draining, or if this was already recorded.
    """
    draining = Node.objects.filter(pk=node.pk, state=NodeState.DRAINING, emptied_at=None)
    return draining.update(emptied_at=at or timezone.now()) == 1


def mark_nodes_emptied(nodes: QuerySet[Node], *, at: datetime) -> int:
    """Record, in one statement, that the draining nodes in the query have no pods left.

    Return the number of nodes that were updated.
    """
    return nodes.filter(state=NodeState.DRAINING, emptied_at=None).update(emptied_at=at)


def interrupt_node(node: Node, interruption: Interruption, *, at: datetime) -> bool:
    """Drain a node whose provider is reclaiming the machine, such as a spot instance.

    A node that is not ready yet is marked as lost. Interrupted nodes never return. Return False if nothing
    changed.
    """
    reason, ends_at = interruption.reason, interruption.at
    with transaction.atomic():
        if node.state in PENDING:
            recorded = compare_and_set(node, "state", expected=PENDING, to=NodeState.LOST, since=at)
        elif node.state == NodeState.DRAINING:
            unrecorded = Q(drained_by_scaling=True)
            if ends_at is not None:
                unrecorded |= Q(interruption_at=None)
            draining = Node.objects.filter(unrecorded, pk=node.pk, state=NodeState.DRAINING)
            recorded = (
                draining.update(interruption_at=ends_at, drain_reason=reason, drained_by_scaling=False) == 1
            )
        else:
            drain_columns = {"drain_started_at": at, "drain_reason": reason[:255], "interruption_at": ends_at}
            recorded = compare_and_set(
                node,
                "state",
                expected=USABLE,
                to=NodeState.DRAINING,
                since=at,
                **(DRAIN_RESET | drain_columns),
            )
        if recorded:
            text = ends_at.isoformat() if ends_at else None
            history.write(node.pool, ScalingKind.INTERRUPTION, reason, at=at, node=node, interruption_at=text)
    return recorded


@dataclass(frozen=True, slots=True)
class _NodeChange:
    action: str
    kind: ScalingKind
    expected: tuple[NodeState, ...]
    to: NodeState


def _apply(change: _NodeChange, *, actor: Any, node: Node, reason: str = "", **columns: Any) -> None:
    now = timezone.now()
    with transaction.atomic():
        before = node.state
        if not compare_and_set(node, "state", expected=change.expected, to=change.to, since=now, **columns):
            node.refresh_from_db()
            allowed = " or ".join(change.expected)
            raise Conflict(
                f"Cannot {change.action} node {node.name}, because it is {node.state}. The node must be "
                f"{allowed}."
            )
        text = f"{change.action} by {actor.name}" + (f": {reason}" if reason else "")
        history.write(node.pool, change.kind, text, at=now, node=node)
        changed.send(
            Node,
            actor=actor,
            action=change.action,
            obj=node,
            before={"state": str(before)},
            after={"state": str(change.to), "reason": reason},
        )
