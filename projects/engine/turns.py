"""Decide which node runs which pending call."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Waiting:
    """A call that may run anywhere, or, where `node` is set, only there."""

    number: int
    node: int | None = None


@dataclass(frozen=True, slots=True)
class Turns:
    """Which node gets which calls; `turn` is the node that would be next."""

    given: Mapping[int, int]  # call -> node
    turn: int


def next_turns(calls: Iterable[Waiting], room: Mapping[int, int], turn: int) -> Turns:
    """Calls in their order, nodes in turn from `turn` on; a node without room is passed over.

    A call for one node waits for that node, and takes nobody's turn.
    """
    left = {node: free for node, free in room.items() if free > 0}
    given: dict[int, int] = {}
    for call in calls:
        if not left:
            break
        node = _following(sorted(left), turn) if call.node is None else call.node
        if node not in left:
            continue
        given[call.number] = node
        if call.node is None:
            turn = node + 1
        left[node] -= 1
        if not left[node]:
            del left[node]
    return Turns(given, turn)


def _following(nodes: Sequence[int], turn: int) -> int:
    return next((node for node in nodes if node >= turn), nodes[0])
