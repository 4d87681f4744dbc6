"""Place all replicas of an arrangement, or none."""

from collections.abc import Iterator
from collections.abc import Set as AbstractSet

from scheduler.engine.board.board import Board
from scheduler.engine.board.gang import Arrangement, Gang, ReplicaRequest, Scope
from scheduler.engine.board.ledger import NO_BOUND
from scheduler.engine.board.run_ends import known_end_time
from scheduler.engine.placement.search import MAX_STEPS, MIN_STEPS, is_search_useful, search
from scheduler.engine.placement.slots import UsableCapacity, interchangeable_slots, pick_slot

MAX_DOMAINS = 256  # maximum number of domains tried per gang


def place_arrangement(
    board: Board,
    gang: Gang,
    arrangement: Arrangement,
    capacity: UsableCapacity,
    within: AbstractSet[int] | None = None,
) -> bool:
    """Place all replicas of the arrangement.

    If they do not all fit, return False and leave the board unchanged.
    """
    replicas, scoped = 0, False
    for need in arrangement:
        replicas += need.count
        scoped = scoped or bool(need.scopes)
    if gang.group is not None and not board.cycle.placement_attempts.use_attempt(gang, replicas):
        return False
    within = available_nodes(board, gang, within)
    if scoped:
        all_nodes = board.topology.all_nodes if within is None else frozenset(within)
        placed = _ScopedPlacement(board, gang, capacity).place(arrangement, all_nodes)
        return placed or search(board, gang, arrangement, capacity, within)
    return _place_without_scopes(board, gang, arrangement, capacity, within)


def available_nodes(
    board: Board, gang: Gang, within: AbstractSet[int] | None = None
) -> AbstractSet[int] | None:
    """Return the nodes in `within` that are not held for another workload. None means all nodes."""
    hold = board.cycle.held_nodes()
    if hold is None or may_use_held_nodes(board, gang):
        return within
    return (board.topology.all_nodes if within is None else within) - hold.nodes


def may_use_held_nodes(board: Board, gang: Gang) -> bool:
    """Return whether the gang may use all nodes, because it ends before any held node is needed."""
    hold = board.cycle.held_nodes()
    if hold is None or hold.name == gang.name:
        return True
    end = None if hold.until is None else known_end_time(gang, board.now)
    return end is not None and hold.until is not None and end <= hold.until


def _place_without_scopes(
    board: Board,
    gang: Gang,
    arrangement: Arrangement,
    capacity: UsableCapacity,
    within: AbstractSet[int] | None,
    max_steps: int = MAX_STEPS,
) -> bool:
    start = board.log_position()
    for order in _reordered_arrangements(arrangement) if len(arrangement) > 1 else (arrangement,):
        if all(place_replicas(board, gang, need, capacity, within) for need in order):
            return True
        board.rewind(start)
    return is_search_useful(arrangement) and search(
        board, gang, _without_scopes(arrangement), capacity, within, max_steps
    )


def _without_scopes(arrangement: Arrangement) -> Arrangement:
    """Remove the topology scopes, because the selected nodes already satisfy them."""
    return tuple(ReplicaRequest(need.part, need.count) for need in arrangement)


def _reordered_arrangements(arrangement: Arrangement) -> Iterator[Arrangement]:
    """Yield the arrangement with its replicas sorted by size, then by constraints, then by CPU, and finally
    in the given order.
    """
    tried = set()
    for order in (
        tuple(sorted(arrangement, key=difficulty_key)),
        tuple(sorted(arrangement, key=lambda need: (_matching_node_count(need), difficulty_key(need)))),
        tuple(sorted(arrangement, key=lambda need: (-need.part.amounts[1], difficulty_key(need)))),
        arrangement,
    ):
        parts = tuple(id(need.part) for need in order)
        if parts not in tried:
            tried.add(parts)
            yield order


def _matching_node_count(need: ReplicaRequest) -> int:
    return NO_BOUND if need.part.mask is None else sum(need.part.mask)


class _ScopedPlacement:
    """Helper that places an arrangement one topology scope at a time, and tries a limited number of
    domains.
    """

    def __init__(self, board: Board, gang: Gang, capacity: UsableCapacity) -> None:
        self.board, self.gang, self.capacity, self.left = board, gang, capacity, MAX_DOMAINS

    def place(self, arrangement: Arrangement, within: frozenset[int], depth: int = 0) -> bool:
        """Place the arrangement, with each topology scope within one domain. Return whether it was placed."""
        scope = next((need.scopes[depth] for need in arrangement if len(need.scopes) > depth), None)
        if scope is None:
            return not arrangement or _place_without_scopes(
                self.board, self.gang, arrangement, self.capacity, within, MIN_STEPS
            )
        inner = tuple(
            w for w in arrangement if len(w.scopes) > depth and w.scopes[depth].parts == scope.parts
        )
        rest = tuple(need for need in arrangement if need not in inner)
        start = self.board.log_position()
        for domain in self._domains(scope, within, inner):
            if self.left <= 0:
                break
            self.left -= 1
            if self.place(inner, domain, depth + 1) and self.place(rest, within, depth):
                return True
            self.board.rewind(start)
        return False

    def _domains(self, scope: Scope, within: frozenset[int], needs: Arrangement) -> Iterator[frozenset[int]]:
        """Yield the preferred domains within the required domains, then the required domains."""
        required, preferred = scope.constraint.required, scope.constraint.preferred
        candidate_domains = self.board.topology.candidate_domains
        outer = candidate_domains(required, scope, within, needs) if required else [within]
        if preferred:
            for domain in outer:
                yield from candidate_domains(preferred, scope, domain, needs)
        yield from outer


def difficulty_key(need: ReplicaRequest) -> tuple[int, int, int, int]:
    gpu, cpu, memory = need.part.amounts
    return (-gpu, need.part.mask is None, -cpu, -memory)


def place_replicas(
    board: Board, gang: Gang, need: ReplicaRequest, capacity: UsableCapacity, within: AbstractSet[int] | None
) -> bool:
    """Place all replicas, each in its best slot.

    Return False if that fails. Some replicas may then remain on the board.
    """
    return place_as_many_as_fit(board, gang, need, capacity, within) == need.count


def place_as_many_as_fit(
    board: Board, gang: Gang, need: ReplicaRequest, capacity: UsableCapacity, within: AbstractSet[int] | None
) -> int:
    """Place as many replicas as fit, each in its best slot. Return the number placed."""
    part, free = need.part, need.part.free_indices()
    if need.count == 1:
        index = next(free, None)
        slot = None if index is None else pick_slot(board, part, capacity, within)
        if index is None or slot is None:
            return 0
        board.place_pod(gang, part, index, slot)
        return 1
    slots = interchangeable_slots(board, part, need.count, capacity, within)
    for placed in range(need.count):
        index = next(free, None)
        slot = next(slots, None) if index is not None else None
        if index is None or slot is None:
            return placed
        board.place_pod(gang, part, index, slot)
    return need.count
