"""Here we search for an arrangement of several roles when packing them one after the other has failed.

Depth first; equal replicas go up the list of nodes, equal nodes are tried once, steps are counted.
"""

from collections.abc import Hashable, Sequence
from collections.abc import Set as AbstractSet

from scheduler.engine.board import Board
from scheduler.engine.gang import Gang, Part, Want, Way, amounts_of
from scheduler.engine.ledger import KINDS
from scheduler.engine.nodes import Spot
from scheduler.engine.spots import Horizon, on_node, takes

MOST_STEPS = 200


def search(board: Board, gang: Gang, way: Way, horizon: Horizon, within: AbstractSet[int] | None) -> bool:
    """Put everything on the board, or leave it as it was."""
    nodes = board.nodes
    usable = [i for i in range(len(nodes.nodes)) if nodes.ready[i] and (within is None or i in within)]
    asked, free = amounts_of(way), (nodes.gpu, nodes.cpu_unasked, nodes.memory_unasked)
    if any(asked[kind] > sum(max(0, free[kind][i]) for i in usable) for kind in KINDS):
        return False
    replicas = [want.part for want in sorted(way, key=_biggest) for _ in range(want.count)]
    return _Search(board, gang, replicas, horizon, usable).place(0, 0)


def _biggest(want: Want) -> tuple[int, ...]:
    return tuple(-amount for amount in want.part.amounts)


class _Search:
    def __init__(
        self, board: Board, gang: Gang, replicas: Sequence[Part], horizon: Horizon, usable: Sequence[int]
    ) -> None:
        self.board, self.gang, self.replicas = board, gang, replicas
        self.horizon, self.usable, self.steps = horizon, usable, 0

    def place(self, which: int, first: int) -> bool:
        """Place the replicas from this one on; an equal one before it stands at or before `first`."""
        if which == len(self.replicas):
            return True
        part = self.replicas[which]
        index = next(part.free_indices(), None)
        if index is None:
            return False
        for position, spot in self._choices(part, first):
            self.steps += 1
            if self.steps > MOST_STEPS:
                return False
            mark = self.board.mark()
            self.board.put(self.gang, part, index, spot)
            same = which + 1 < len(self.replicas) and self.replicas[which + 1] is part
            if self.place(which + 1, position if same else 0):
                return True
            self.board.rewind(mark)
        return False

    def _choices(self, part: Part, first: int) -> list[tuple[int, Spot]]:
        """The tightest nodes first, of equal nodes one."""
        nodes, seen, found = self.board.nodes, set[Hashable](), []
        for position in range(first, len(self.usable)):
            i = self.usable[position]
            if not takes(nodes, i, part, self.horizon):
                continue
            spot = on_node(nodes, i, part, self.horizon)
            alike = (tuple(sorted(nodes.devices[i])), nodes.cpu[i], nodes.memory[i], nodes.pods[i],
                     *(other.mask is None or other.mask[i] for other in self.replicas))  # fmt: skip
            if spot is not None and alike not in seen:
                seen.add(alike)
                found.append((nodes.gpu[i], position, spot))
        return [(position, spot) for _, position, spot in sorted(found)]
