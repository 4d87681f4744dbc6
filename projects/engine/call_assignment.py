"""Assign the pending calls of a session to nodes."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PendingCall:
    """Pending call. If `node` is set, the call must run on that node."""

    number: int
    node: int | None = None


@dataclass(frozen=True, slots=True)
class Assignment:
    """Node assigned to each call, and the node whose turn is next."""

    assigned: Mapping[int, int]  # node assigned to each call
    turn: int


def assign_calls(calls: Iterable[PendingCall], slots_by_node: Mapping[int, int], turn: int) -> Assignment:
    """Assign calls, in order, to nodes with free slots.

    Nodes take turns, starting with `turn`. A call for a specific node waits for that node.
    """
    free_slots = {node: free for node, free in slots_by_node.items() if free > 0}
    assigned: dict[int, int] = {}
    for call in calls:
        if not free_slots:
            break
        node = _next_node(sorted(free_slots), turn) if call.node is None else call.node
        if node not in free_slots:
            continue
        assigned[call.number] = node
        if call.node is None:
            turn = node + 1
        free_slots[node] -= 1
        if not free_slots[node]:
            del free_slots[node]
    return Assignment(assigned, turn)


def _next_node(nodes: Sequence[int], turn: int) -> int:
    return next((node for node in nodes if node >= turn), nodes[0])
