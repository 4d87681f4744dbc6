"""Search for a placement of all movable pods and a pending gang on a few nodes.

It finds arrangements that packing by size misses.
"""

from collections.abc import Hashable, Iterator, Sequence
from itertools import combinations, islice, repeat
from typing import NamedTuple

from berth.core.values.amounts import MILLI
from scheduler.engine.board.board import Board
from scheduler.engine.board.gang import Arrangement, BoardRole, Gang, enclosing_scopes, node_usage_per_replica
from scheduler.engine.board.ledger import CPU, GPU, MEMORY
from scheduler.engine.board.nodes import Slot
from scheduler.engine.model import Pod
from scheduler.engine.placement.find_room import available_nodes
from scheduler.engine.preemption.victims.selection import VictimSelection

MAX_NODES = 16
MAX_PODS = 48
MAX_STEPS = 2000  # maximum number of steps per cycle, summed over all searches
MAX_DEVICE_CHOICES = 16  # maximum number of device combinations tried per node


class _PodToPlace(NamedTuple):
    gang: Gang
    part: BoardRole
    pod: Pod | None  # the pod to place, or None for a replica of the preemptor
    is_fixed: bool  # whether the pod must stay on its node


class _FreeResources(NamedTuple):
    """Free resources of one node. Nodes with equal values are interchangeable."""

    kind: int  # class of nodes that accept the same replicas
    devices: tuple[int, ...]
    cpu: int
    memory: int
    pods: int


def place_exactly(selection: VictimSelection, arrangement: Arrangement) -> bool:
    """Place the arrangement, and plan a new slot for each of the victims' pods.

    Return False if no such placement was found.
    """
    board, preemptor = selection.board, selection.policy.gang
    if len(board.nodes.nodes) > MAX_NODES or len(selection.selected) > MAX_PODS:
        return False
    if any(need.scopes or need.part.role.spread_per_node is not None for need in arrangement):
        return False
    if any(len(list(islice(need.part.free_indices(), need.count))) < need.count for need in arrangement):
        return False  # indices of stopping pods cannot be reused yet
    items = _replicas_to_place(selection, arrangement)
    slots, max_moves = None, selection.policy.max_moves
    while max_moves is None or max_moves >= 0:
        fewer_moves = _ExactSearch(board, items, max_moves).run()
        if fewer_moves is None:
            break
        slots = fewer_moves
        max_moves = sum(map(_is_move, items, slots, repeat(board))) - 1
    if slots is None:
        return False
    for item, slot in zip(items, slots, strict=True):
        if item.pod is None:
            board.place_pod(preemptor, item.part, next(item.part.free_indices()), slot)
        else:
            selection.planned_slots[id(item.pod)] = slot
    return True


def _replicas_to_place(selection: VictimSelection, arrangement: Arrangement) -> list[_PodToPlace]:
    """Return the replicas to place: first the pods that must stay, then all others, largest first."""
    board, preemptor = selection.board, selection.policy.gang
    items = [
        _PodToPlace(preemptor, need.part, None, False) for need in arrangement for _ in range(need.count)
    ]
    items += [
        _PodToPlace(victim.gang, part, pod, _must_stay_on_node(board, victim.gang, part, pod))
        for victim in selection.selected
        for part, pod in victim.pods
    ]
    items.sort(key=_sort_key)
    return items


def _must_stay_on_node(board: Board, gang: Gang, part: BoardRole, pod: Pod) -> bool:
    is_bound = part.role.spread_per_node is not None or bool(enclosing_scopes(gang, part))
    return is_bound or board.is_newly_placed(pod)


def _sort_key(item: _PodToPlace) -> tuple[object, ...]:
    name = "" if item.pod is None else item.gang.name
    index = 0 if item.pod is None else item.pod.index
    amounts = (-node_usage_per_replica(item.part, kind) for kind in (GPU, CPU, MEMORY))
    return (not item.is_fixed, *amounts, name, item.part.role.name, index)


def _is_move(item: _PodToPlace, slot: Slot, board: Board) -> bool:
    pod = item.pod
    return pod is not None and (board.nodes.index[pod.node], pod.devices) != (slot.node, slot.devices)


def _sorted_devices(free: _FreeResources) -> _FreeResources:
    return free._replace(devices=tuple(sorted(free.devices)))


class _ExactSearch:
    """Depth-first search that places the replicas in order."""

    def __init__(self, board: Board, items: Sequence[_PodToPlace], max_moves: int | None) -> None:
        self._board, self._items, self._max_moves = board, items, max_moves
        nodes = board.nodes
        self._open = [self._allowed_nodes(item) for item in items]
        kinds: dict[Hashable, int] = {}
        self._free = [
            _FreeResources(
                kinds.setdefault(self._node_key(i), i),
                tuple(nodes.devices[i]),
                nodes.cpu[i],
                nodes.memory[i],
                nodes.pods[i],
            )
            for i in range(len(nodes.nodes))
        ]
        self._slots: list[Slot] = []
        self._failed: set[tuple[object, ...]] = set()

    def run(self) -> list[Slot] | None:
        """Return a slot for each item, or None if there is no solution."""
        return self._slots if self._place(0, 0) else None

    def _allowed_nodes(self, item: _PodToPlace) -> frozenset[int]:
        nodes, mask = self._board.nodes, item.part.mask
        within = available_nodes(self._board, item.gang)
        return frozenset(
            i
            for i, ready in enumerate(nodes.ready)
            if ready and (within is None or i in within) and (mask is None or mask[i])
        )

    def _node_key(self, i: int) -> Hashable:
        """Return a key that interchangeable nodes share."""
        nodes = self._board.nodes
        return (
            nodes.nodes[i].gpu_memory_mib,
            # A node that is not ready can keep its own pods, but accepts no others.
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
            else (number, moves, *self._free)  # with a limit on moves, it matters which pods can stay
        )
        if state in self._failed:
            return False
        for slot, is_move in self._choices(number):
            if is_move and self._max_moves is not None and moves >= self._max_moves:
                continue
            before = self._free[slot.node]
            self._free[slot.node] = self._free_after_placing(before, self._items[number].part, slot)
            self._slots.append(slot)
            if self._place(number + 1, moves + is_move):
                return True
            self._slots.pop()
            self._free[slot.node] = before
        self._failed.add(state)
        return False

    def _choices(self, number: int) -> Iterator[tuple[Slot, bool]]:
        """Yield possible slots for an item, best first.

        Each slot has a flag that is True if the item's pod would have to move there.
        """
        item, nodes = self._items[number], self._board.nodes
        tried = set[object]()
        if item.pod is not None:
            i = nodes.index[item.pod.node]
            slot = Slot(i, item.pod.devices, item.pod.milli)
            if self._fits(item.part, slot):
                yield slot, False
            if item.is_fixed:
                return
        for i in sorted(self._open[number], key=lambda i: (sum(self._free[i].devices), i)):
            free = self._free[i]
            if free not in tried:
                tried.add(free)
                for slot in self._slots_on_node(i, item.part):
                    yield slot, item.pod is not None

    def _slots_on_node(self, i: int, part: BoardRole) -> Iterator[Slot]:
        milli, count = self._board.nodes.device_share_milli(i, part.request), part.request.devices
        free = self._free[i].devices
        able = sorted((d for d, left in enumerate(free) if left >= milli), key=lambda d: (free[d], d))
        tried = set[tuple[int, ...]]()
        for devices in islice(combinations(able, count), MAX_DEVICE_CHOICES):
            rooms = tuple(free[d] for d in devices)
            slot = Slot(i, tuple(sorted(devices)), milli if count else 0)
            if rooms not in tried and self._fits(part, slot):
                tried.add(rooms)
                yield slot

    def _fits(self, part: BoardRole, slot: Slot) -> bool:
        free = self._free[slot.node]
        return (
            free.cpu >= node_usage_per_replica(part, CPU)
            and free.memory >= node_usage_per_replica(part, MEMORY)
            and free.pods >= 1
            and slot.milli <= MILLI
            and all(free.devices[device] >= slot.milli for device in slot.devices)
        )

    @staticmethod
    def _free_after_placing(free: _FreeResources, part: BoardRole, slot: Slot) -> _FreeResources:
        devices = list(free.devices)
        for device in slot.devices:
            devices[device] -= slot.milli
        return _FreeResources(
            free.kind,
            tuple(devices),
            free.cpu - node_usage_per_replica(part, CPU),
            free.memory - node_usage_per_replica(part, MEMORY),
            free.pods - 1,
        )
