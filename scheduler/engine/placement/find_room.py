"""Find room for all missing replicas of a gang, or for none."""

from collections.abc import Iterator
from collections.abc import Set as AbstractSet

from scheduler.engine.board.board import Board
from scheduler.engine.board.gang import Arrangement, Gang, ReplicaRequest, Scope
from scheduler.engine.board.ledger import NO_BOUND
from scheduler.engine.placement.search import LEAST_STEPS, MOST_STEPS, search, worth_it
from scheduler.engine.placement.spots import Horizon, equal_spots, pick

MOST_DOMAINS = 256  # domains tried for one gang before the gang is refused


def find_room(
    board: Board,
    gang: Gang,
    arrangement: Arrangement,
    horizon: Horizon,
    within: AbstractSet[int] | None = None,
) -> bool:
    """Place all replicas of the arrangement. If that fails, return False and leave the board unchanged."""
    replicas, scoped = 0, False
    for need in arrangement:
        replicas += need.count
        scoped = scoped or bool(need.scopes)
    if gang.group is not None and not board.cycle.efforts.may_try(gang, replicas):
        return False
    within = open_to(board, gang, within)
    if scoped:
        everywhere = board.topology.everywhere if within is None else frozenset(within)
        placed = _Scoped(board, gang, horizon).place(arrangement, everywhere)
        return placed or search(board, gang, arrangement, horizon, within)
    return _anywhere(board, gang, arrangement, horizon, within)


def open_to(board: Board, gang: Gang, within: AbstractSet[int] | None = None) -> AbstractSet[int] | None:
    """Return the nodes in `within` (None: all nodes) that are not held for another workload."""
    if board.cycle.backfill_hold is None or may_use_held_nodes(board, gang):
        return within
    return (board.topology.everywhere if within is None else within) - board.cycle.backfill_hold.nodes


def may_use_held_nodes(board: Board, gang: Gang) -> bool:
    """Return whether nodes are held for this gang, or the gang will end before they are needed."""
    hold, longest = board.cycle.backfill_hold, gang.workload.max_runtime
    if hold is None or hold.name == gang.name:
        return True
    started = gang.workload.started if gang.stands else None
    return longest is not None and (board.now if started is None else started) + longest <= hold.until


def _anywhere(
    board: Board,
    gang: Gang,
    arrangement: Arrangement,
    horizon: Horizon,
    within: AbstractSet[int] | None,
    most: int = MOST_STEPS,
) -> bool:
    start = board.mark()
    for order in _orders(arrangement) if len(arrangement) > 1 else (arrangement,):
        if all(place(board, gang, need, horizon, within) for need in order):
            return True
        board.rewind(start)
    return worth_it(arrangement) and search(board, gang, _unbound(arrangement), horizon, within, most)


def _unbound(arrangement: Arrangement) -> Arrangement:
    """Drop the scopes, which the caller has already used to choose the nodes."""
    return tuple(ReplicaRequest(need.part, need.count) for need in arrangement)


def _orders(arrangement: Arrangement) -> Iterator[Arrangement]:
    """Yield distinct orders of the replicas: by size, by constraints, by CPU, as given."""
    tried = set()
    for order in (
        tuple(sorted(arrangement, key=hardest_first)),
        tuple(sorted(arrangement, key=lambda need: (_choices(need), hardest_first(need)))),
        tuple(sorted(arrangement, key=lambda need: (-need.part.amounts[1], hardest_first(need)))),
        arrangement,
    ):
        parts = tuple(id(need.part) for need in order)
        if parts not in tried:
            tried.add(parts)
            yield order


def _choices(need: ReplicaRequest) -> int:
    return NO_BOUND if need.part.mask is None else sum(need.part.mask)


class _Scoped:
    """Places an arrangement scope by scope. The number of domains tried is bounded."""

    def __init__(self, board: Board, gang: Gang, horizon: Horizon) -> None:
        self.board, self.gang, self.horizon, self.left = board, gang, horizon, MOST_DOMAINS

    def place(self, arrangement: Arrangement, within: frozenset[int], depth: int = 0) -> bool:
        """Place each scope in one domain. If a later scope fails, try the next domain for an earlier one."""
        scope = next((need.scopes[depth] for need in arrangement if len(need.scopes) > depth), None)
        if scope is None:
            return not arrangement or _anywhere(
                self.board, self.gang, arrangement, self.horizon, within, LEAST_STEPS
            )
        inner = tuple(
            w for w in arrangement if len(w.scopes) > depth and w.scopes[depth].parts == scope.parts
        )
        rest = tuple(need for need in arrangement if need not in inner)
        start = self.board.mark()
        for domain in self._domains(scope, within, inner):
            if self.left <= 0:
                break
            self.left -= 1
            if self.place(inner, domain, depth + 1) and self.place(rest, within, depth):
                return True
            self.board.rewind(start)
        return False

    def _domains(self, scope: Scope, within: frozenset[int], needs: Arrangement) -> Iterator[frozenset[int]]:
        """Yield domains of the preferred level inside the required level, then the required level's own."""
        required, preferred = scope.constraint.required, scope.constraint.preferred
        choices = self.board.topology.choices
        outer = choices(required, scope, within, needs) if required else [within]
        if preferred:
            for domain in outer:
                yield from choices(preferred, scope, domain, needs)
        yield from outer


def hardest_first(need: ReplicaRequest) -> tuple[int, int, int, int]:
    gpu, cpu, memory = need.part.amounts
    return (-gpu, need.part.mask is None, -cpu, -memory)


def place(
    board: Board, gang: Gang, need: ReplicaRequest, horizon: Horizon, within: AbstractSet[int] | None
) -> bool:
    """Place all replicas, each where it fits best. If that fails, some may remain on the board."""
    return place_most(board, gang, need, horizon, within) == need.count


def place_most(
    board: Board, gang: Gang, need: ReplicaRequest, horizon: Horizon, within: AbstractSet[int] | None
) -> int:
    """Place as many of the replicas as fit, each where it fits best. Return the number placed."""
    part, free = need.part, need.part.free_indices()
    if need.count == 1:
        index = next(free, None)
        spot = None if index is None else pick(board, part, horizon, within)
        if index is None or spot is None:
            return 0
        board.put(gang, part, index, spot)
        return 1
    spots = equal_spots(board, part, need.count, horizon, within)
    for placed in range(need.count):
        index = next(free, None)
        spot = next(spots, None) if index is not None else None
        if index is None or spot is None:
            return placed
        board.put(gang, part, index, spot)
    return need.count
