"""Place a gang by depth-first search over nodes and devices, considering all topology constraints at once."""

from collections.abc import Hashable, Sequence
from collections.abc import Set as AbstractSet
from itertools import combinations, islice
from typing import NamedTuple

from berth.core.values.amounts import MILLI
from scheduler.engine.board.board import Board
from scheduler.engine.board.gang import Arrangement, BoardRole, Gang, ReplicaRequest, Scope, smallest_request
from scheduler.engine.board.ledger import KINDS
from scheduler.engine.board.nodes import Slot
from scheduler.engine.placement.slots import UsableCapacity, find_slot_on_node, has_room

# Maximum number of steps in small pools. It is lower in larger pools, because each step costs more.
MAX_STEPS = 3000
MIN_STEPS = 200
MAX_REPLICAS = 500  # maximum number of replicas; each adds a step and a level of recursion
MAX_EVALUATIONS = 20_000  # maximum number of node evaluations over all steps
MAX_DEVICE_CHOICES = 16  # maximum number of device combinations tried per node

Domains = dict[Scope, frozenset[int]]  # topology domain in which each scope's pods run


def search(
    board: Board,
    gang: Gang,
    arrangement: Arrangement,
    capacity: UsableCapacity,
    within: AbstractSet[int] | None,
    max_steps: int = MAX_STEPS,
) -> bool:
    """Place all replicas. If that fails, return False and leave the board unchanged."""
    nodes = board.nodes
    usable = [i for i in range(len(nodes.nodes)) if nodes.ready[i] and (within is None or i in within)]
    requested, free = (
        smallest_request(arrangement),
        (nodes.gpu, nodes.cpu_unrequested, nodes.memory_unrequested),
    )
    if any(requested[kind] > sum(max(0, free[kind][i]) for i in usable) for kind in KINDS):
        return False
    if any(not _fits_anywhere(board, need, capacity, usable) for need in arrangement):
        return False
    if sum(need.count for need in arrangement) > MAX_REPLICAS:
        return False
    replicas = [need for need in sorted(arrangement, key=_difficulty_key) for _ in range(need.count)]
    return _Search(board, gang, replicas, capacity, usable, max_steps).place(0, 0, {})


def is_search_useful(arrangement: Arrangement) -> bool:
    """Return whether a search may find a placement that simple packing misses, because the arrangement has
    several roles, topology scopes or shared devices.
    """
    return len(arrangement) > 1 or any(
        need.scopes or (need.part.request.devices > 1 and need.part.milli < MILLI) for need in arrangement
    )


def _difficulty_key(need: ReplicaRequest) -> tuple[int, ...]:
    """Return the sort key: replicas in the most topology scopes first, then the largest request."""
    return (-len(need.scopes), *(-amount for amount in need.part.amounts))


def _fits_anywhere(
    board: Board, need: ReplicaRequest, capacity: UsableCapacity, usable: Sequence[int]
) -> bool:
    """Return whether one replica fits on any node, a cheap check that rejects most gangs that do not fit."""
    part = need.part
    return any(
        has_room(board.nodes, i, part, capacity)
        and find_slot_on_node(board.nodes, i, part, capacity) is not None
        for i in usable
    )


class _Choice(NamedTuple):
    """Possible slot for one replica. Slots on nodes with few free GPUs come first."""

    free: int
    position: int
    number: int  # position of this choice among its node's choices
    slot: Slot
    inside: Domains  # topology domains of the replica's scopes


class _Search:
    def __init__(
        self,
        board: Board,
        gang: Gang,
        replicas: Sequence[ReplicaRequest],
        capacity: UsableCapacity,
        usable: Sequence[int],
        max_steps: int,
    ) -> None:
        self.board, self.gang, self.replicas = board, gang, replicas
        self.capacity, self.usable = capacity, usable
        self.left = max(MIN_STEPS, min(max_steps, MAX_EVALUATIONS // max(1, len(usable))))
        levels = sorted({
            scope.constraint.required
            for need in replicas for scope in need.scopes if scope.constraint.required
        })  # fmt: skip
        self.parts = list(dict.fromkeys(need.part for need in replicas))
        self.spread_parts = [part for part in self.parts if part.replicas_by_node is not None]
        self.domain_by_node = {level: board.topology.domain_by_node(level) for level in levels}
        self.kinds = {i: self._static_key(i) for i in usable}

    def place(self, which: int, first: int, inside: Domains) -> bool:
        """Place all replicas from index `which` onwards, and return whether they were placed.

        For the first of these replicas, only the choices from `first` onwards are tried.
        """
        if which == len(self.replicas):
            return True
        need = self.replicas[which]
        index = next(need.part.free_indices(), None)
        if index is None:
            return False
        for choice in self._choices(need, first, inside):
            self.left -= 1
            if self.left < 0:
                return False
            mark = self.board.log_position()
            self.board.place_pod(self.gang, need.part, index, choice.slot)
            same = which + 1 < len(self.replicas) and self.replicas[which + 1] is need
            if self.place(which + 1, choice.position if same else 0, choice.inside):
                return True
            self.board.rewind(mark)
        return False

    def _choices(self, need: ReplicaRequest, first: int, inside: Domains) -> list[_Choice]:
        """Return possible slots for a replica, tightest first.

        Only usable nodes from position `first` are considered, and only one of several equivalent nodes.
        """
        nodes, part, tried, result = self.board.nodes, need.part, set[Hashable](), list[_Choice]()
        for position in range(first, len(self.usable)):
            i = self.usable[position]
            if not has_room(nodes, i, part, self.capacity):
                continue
            domains = self._with_node_domains(need.scopes, i, inside)
            if domains is None:
                continue
            alike = self._state_key(i)
            if alike in tried:
                continue
            tried.add(alike)
            for number, slot in enumerate(self._possible_slots(i, part)):
                result.append(_Choice(nodes.gpu[i], position, number, slot, domains))
        return sorted(result, key=lambda choice: choice[:3])

    def _with_node_domains(self, scopes: Sequence[Scope], i: int, inside: Domains) -> Domains | None:
        """Return the topology domains that must contain the replicas once one of them is placed on node `i`.

        Return None if a topology scope rules out the node.
        """
        for scope in scopes:
            level = scope.constraint.required
            if level is None:
                continue
            domain = inside.get(scope)
            if domain is None:
                domain = self.domain_by_node[level].get(i, frozenset())
                occupied = {self.board.nodes.index[pod.node] for p in scope.parts for pod in p.live.values()}
                if not domain or not occupied <= domain:
                    return None
                inside = {**inside, scope: domain}
            elif i not in domain:
                return None
        return inside

    def _static_key(self, i: int) -> Hashable:
        return (
            self.board.nodes.nodes[i].gpu_memory_mib,
            *(part.mask is None or part.mask[i] for part in self.parts),
            *(id(domain_by_node.get(i)) for domain_by_node in self.domain_by_node.values()),
        )

    def _state_key(self, i: int) -> Hashable:
        nodes = self.board.nodes
        return (
            self.kinds[i], tuple(sorted(nodes.devices[i])), nodes.pods[i], i in nodes.leaving and i,
            nodes.cpu[i], nodes.memory[i], nodes.cpu_unrequested[i], nodes.memory_unrequested[i],
            *(
                part.replicas_by_node.get(i, 0)
                for part in self.spread_parts if part.replicas_by_node is not None
            ),
        )  # fmt: skip

    def _possible_slots(self, i: int, part: BoardRole) -> list[Slot]:
        """Return device combinations, tightest first. Equally free devices are interchangeable."""
        nodes = self.board.nodes
        packed = find_slot_on_node(nodes, i, part, self.capacity)
        if packed is None or packed.milli == MILLI or not packed.devices:
            return [] if packed is None else [packed]
        free, leaving = nodes.devices[i], i in nodes.leaving
        now = [not leaving or nodes.free_now(i, d) >= packed.milli for d in range(len(free))]
        usable = sorted(
            (
                d
                for d, left in enumerate(free)
                if left >= packed.milli and (now[d] or self.capacity > UsableCapacity.NOW)
            ),
            key=lambda d: (not now[d], free[d], d),
        )
        result: dict[tuple[tuple[int, bool], ...], Slot] = {}
        for devices in islice(combinations(usable, len(packed.devices)), MAX_DEVICE_CHOICES * 4):
            rooms = tuple((free[d], now[d]) for d in devices)
            result.setdefault(rooms, Slot(i, tuple(sorted(devices)), packed.milli))
        return list(islice(result.values(), MAX_DEVICE_CHOICES))
