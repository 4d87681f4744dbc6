"""Cordon, uncordon or drain several nodes."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from berth.core.errors import Conflict
from pools.models import Node
from pools.models.node import NodeState
from pools.services.nodes import cordon_node, drain_node, uncordon_node

RESULTS: Mapping[str, tuple[Callable[..., None], NodeState]] = {
    "cordon": (cordon_node, NodeState.CORDONED),
    "uncordon": (uncordon_node, NodeState.READY),
    "drain": (drain_node, NodeState.DRAINING),
}


@dataclass(frozen=True, slots=True)
class NodeBatch:
    """Result of an action on several nodes.

    `unchanged` lists nodes that were already in the resulting state. `rejected` lists nodes that rejected the
    action, each with the reason.
    """

    changed: tuple[Node, ...]
    unchanged: tuple[Node, ...]
    rejected: tuple[tuple[Node, str], ...]


def change_nodes(*, actor: Any, nodes: Iterable[Node], action: str, **details: Any) -> NodeBatch:
    """Apply one of the actions in RESULTS to each node, even if other nodes reject it."""
    change, result = RESULTS[action]
    changed, unchanged = list[Node](), list[Node]()
    rejected = list[tuple[Node, str]]()
    for node in nodes:
        if node.state == result:
            unchanged.append(node)
            continue
        try:
            change(actor=actor, node=node, **details)
        except Conflict as conflict:
            if node.state == result:  # another request has already made this change
                unchanged.append(node)
            else:
                rejected.append((node, conflict.detail))
        else:
            changed.append(node)
    return NodeBatch(tuple(changed), tuple(unchanged), tuple(rejected))
