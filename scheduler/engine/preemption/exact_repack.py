"""Backtracking search that places all movable pods and a pending gang on a few nodes.

It finds arrangements that packing by size misses. Pods stay on their nodes if possible. Equivalent states
are tried once, and the number of steps per cycle is limited.
"""

from collections.abc import Hashable, Iterator, Sequence
from itertools import combinations, islice, repeat
from typing import NamedTuple

from berth.core.amounts import MILLI
from scheduler.engine.board.board import Board
from scheduler.engine.board.gang import Arrangement, BoardRole, Gang, limit_of, scopes_above
from scheduler.engine.board.ledger import CPU, GPU, MEMORY
from scheduler.engine.board.nodes import Spot
from scheduler.engine.model import Pod
from scheduler.engine.placement.find_room import available_nodes
from scheduler.engine.preemption.victims.selection import VictimSelection

MAX_NODES = 16
MAX_PODS = 48
MAX_STEPS = 2000  # per cycle, over all searches
MAX_DEVICE_CHOICES = 16  # per node


class _Item(NamedTuple):
    """Replica to be placed."""

    gang: Gang
    part: BoardRole
    pod: Pod | None  # None for replicas of the preemptor
    is_fixed: bool  # whether the pod has to stay


class _Free(NamedTuple):
    """Free resources of one node. Nodes with equal values are interchangeable."""

    kind: int  # equal for nodes that accept the same items
    devices: tuple[int, ...]
    cpu: int
    memory: int
    pods: int


def place_exactly(selection: VictimSelection, arrangement: Arrangement) -> bool:
    """Place the arrangement and plan spots for all selected pods. Return False if that fails."""
    board, preemptor = selection.board, selection.policy.gang
    if len(board.nodes.nodes) > MAX_NODES or len(selection.selected) > MAX_PODS:
        return False
    if any(need.scopes or need.part.role.spread_per_node is not None for need in arrangement):
        return False
    if any(len(list(islice(need.part.free_indices(), need.count))) < need.count for need in arrangement):
        return False  # indices of stopping pods cannot be reused yet
    items = _items(selection, arrangement)
    spots, max_moves = None, selection.policy.max_moves
    while max_moves is None or max_moves >= 0:
        fewer_moves = _ExactSearch(board, items, max_moves).run()
        if fewer_moves is None:
            break
        spots = fewer_moves
        max_moves = sum(map(_is_move, items, spots, repeat(board))) - 1
    if spots is None:
        return False
    for item, spot in zip(items, spots, strict=True):
        if item.pod is None:
            board.put(preemptor, item.part, next(item.part.free_indices()), spot)
        else:
            selection.planned_spots[id(item.pod)] = spot
    return True


def _items(selection: VictimSelection, arrangement: Arrangement) -> list[_Item]:
    """Return the replicas to be placed: first those that have to stay, then the others, largest first."""
    board, preemptor = selection.board, selection.policy.gang
    items = [_Item(preemptor, need.part, None, False) for need in arrangement for _ in range(need.count)]
    items += [
        _Item(victim.gang, part, pod, _has_to_stay(board, victim.gang, part, pod))
        for victim in selection.selected
        for part, pod in victim.pods
    ]
    items.sort(key=_sort_key)
    return items


def _has_to_stay(board: Board, gang: Gang, part: BoardRole, pod: Pod) -> bool:
    is_bound = part.role.spread_per_node is not None or bool(scopes_above(gang, part))
    return is_bound or board.is_newly_placed(pod)


def _sort_key(item: _Item) -> tuple[object, ...]:
    name = "" if item.pod is None else item.gang.name
    index = 0 if item.pod is None else item.pod.index
    amounts = (-limit_of(item.part, kind) for kind in (GPU, CPU, MEMORY))
    return (not item.is_fixed, *amounts, name, item.part.role.name, index)


def _is_move(item: _Item, spot: Spot, board: Board) -> bool:
    pod = item.pod
    return pod is not None and (board.nodes.index[pod.node], pod.devices) != (spot.node, spot.devices)


def _sorted_devices(free: _Free) -> _Free:
    return free._replace(devices=tuple(sorted(free.devices)))


class _ExactSearch:
    """Depth-first search over the items in order."""

    def __init__(self, board: Board, items: Sequence[_Item], max_moves: int | None) -> None:
        self._board, self._items, self._max_moves = board, items, max_moves
        nodes = board.nodes
        self._open = [self._open_nodes(item) for item in items]
        kinds: dict[Hashable, int] = {}
        self._free = [
            _Free(
                kinds.setdefault(self._node_key(i), i),
                tuple(nodes.devices[i]),
                nodes.cpu[i],
                nodes.memory[i],
                nodes.pods[i],
            )
            for i in range(len(nodes.nodes))
        ]
        self._spots: list[Spot] = []
        self._failed: set[tuple[object, ...]] = set()

    def run(self) -> list[Spot] | None:
        """Return a spot for each item, or None."""
        return self._spots if self._place(0, 0) else None

    def _open_nodes(self, item: _Item) -> frozenset[int]:
        """Return the nodes on which the item may be placed."""
        nodes, mask = self._board.nodes, item.part.mask
        within = available_nodes(self._board, item.gang)
        return frozenset(
            i
            for i, ready in enumerate(nodes.ready)
            if ready and (within is None or i in within) and (mask is None or mask[i])
        )

    def _node_key(self, i: int) -> Hashable:
        """Return a key that is equal for interchangeable nodes. Pods may stay on any node, ready or not."""
        nodes = self._board.nodes
        return (
            nodes.nodes[i].gpu_memory_mib,
            -1 if nodes.ready[i] else i,
            *(i in open_nodes for open_nodes in self._open),
        )

    def _place(self, number: int, moves: int) -> bool:
        if number == len(self._items):
            return True
        cycle = self._board.cycle
        if cycle.repack_steps >= MAX_STEPS:
            return False
        cycle.repack_steps += 1
        state: tuple[object, ...] = (
            (number, *sorted(map(_sorted_devices, self._free)))
            if self._max_moves is None
            else (number, moves, *self._free)  # which pods could still stay makes a difference
        )
        if state in self._failed:
            return False
        for spot, is_move in self._choices(number):
            if is_move and self._max_moves is not None and moves >= self._max_moves:
                continue
            before = self._free[spot.node]
            self._free[spot.node] = self._after_placing(before, self._items[number].part, spot)
            self._spots.append(spot)
            if self._place(number + 1, moves + is_move):
                return True
            self._spots.pop()
            self._free[spot.node] = before
        self._failed.add(state)
        return False

    def _choices(self, number: int) -> Iterator[tuple[Spot, bool]]:
        """Yield the spots for an item: its old one, then the fullest nodes; and whether its pod moves."""
        item, nodes = self._items[number], self._board.nodes
        tried = set[object]()
        if item.pod is not None:
            i = nodes.index[item.pod.node]
            spot = Spot(i, item.pod.devices, item.pod.milli)
            if self._fits(item.part, spot):
                yield spot, False
            if item.is_fixed:
                return
        for i in sorted(self._open[number], key=lambda i: (sum(self._free[i].devices), i)):
            free = self._free[i]
            if free not in tried:
                tried.add(free)
                for spot in self._spots_on(i, item.part):
                    yield spot, item.pod is not None

    def _spots_on(self, i: int, part: BoardRole) -> Iterator[Spot]:
        """Yield choices of devices, with only one of several equally free devices."""
        milli, count = self._board.nodes.milli_on(i, part.request), part.request.devices
        free = self._free[i].devices
        able = sorted((d for d, left in enumerate(free) if left >= milli), key=lambda d: (free[d], d))
        tried = set[tuple[int, ...]]()
        for devices in islice(combinations(able, count), MAX_DEVICE_CHOICES):
            rooms = tuple(free[d] for d in devices)
            spot = Spot(i, tuple(sorted(devices)), milli if count else 0)
            if rooms not in tried and self._fits(part, spot):
                tried.add(rooms)
                yield spot

    def _fits(self, part: BoardRole, spot: Spot) -> bool:
        free = self._free[spot.node]
        return (
            free.cpu >= limit_of(part, CPU)
            and free.memory >= limit_of(part, MEMORY)
            and free.pods >= 1
            and spot.milli <= MILLI
            and all(free.devices[device] >= spot.milli for device in spot.devices)
        )

    @staticmethod
    def _after_placing(free: _Free, part: BoardRole, spot: Spot) -> _Free:
        """Return the remaining free resources of the node after the placement."""
        devices = list(free.devices)
        for device in spot.devices:
            devices[device] -= spot.milli
        return _Free(
            free.kind,
            tuple(devices),
            free.cpu - limit_of(part, CPU),
            free.memory - limit_of(part, MEMORY),
            free.pods - 1,
        )
