"""Find room for a gang: for all of the replicas it lacks, or for none."""

from collections.abc import Iterator
from collections.abc import Set as AbstractSet

from scheduler.engine.board.board import Board
from scheduler.engine.board.gang import Gang, Scope, Want, Way
from scheduler.engine.board.ledger import NO_BOUND
from scheduler.engine.placement.search import LEAST_STEPS, MOST_STEPS, search, worth_it
from scheduler.engine.placement.spots import Horizon, equal_spots

MOST_DOMAINS = 256  # tried for one gang before it is refused


def find_room(
    board: Board, gang: Gang, way: Way, horizon: Horizon, within: AbstractSet[int] | None = None
) -> bool:
    """Put everything the way asks for on the board, or leave the board as it was."""
    if gang.peers is not None and not board.efforts.may_try(gang, sum(want.count for want in way)):
        return False
    within = open_to(board, gang, within)
    if any(want.scopes for want in way):
        everywhere = board.topology.everywhere if within is None else frozenset(within)
        placed = _Scoped(board, gang, horizon).place(way, everywhere)
        return placed or search(board, gang, way, horizon, within)
    return _anywhere(board, gang, way, horizon, within)


def open_to(board: Board, gang: Gang, within: AbstractSet[int] | None = None) -> AbstractSet[int] | None:
    """Of these nodes (None: of all) those that are not kept for somebody else."""
    if board.kept is None or may_use_kept(board, gang):
        return within
    return (board.topology.everywhere if within is None else within) - board.kept.nodes


def may_use_kept(board: Board, gang: Gang) -> bool:
    """Whether it is the one that nodes are kept for, or will have ended before that one can start."""
    kept, longest = board.kept, gang.workload.max_runtime
    if kept is None or kept.name == gang.name:
        return True
    started = gang.workload.started if gang.stands else None
    return longest is not None and (board.now if started is None else started) + longest <= kept.until


def _anywhere(
    board: Board,
    gang: Gang,
    way: Way,
    horizon: Horizon,
    within: AbstractSet[int] | None,
    most: int = MOST_STEPS,
) -> bool:
    start = board.mark()
    for order in _orders(way):
        if all(place(board, gang, want, horizon, within) for want in order):
            return True
        board.rewind(start)
    return worth_it(way) and search(board, gang, _unbound(way), horizon, within, most)


def _unbound(way: Way) -> Way:
    """Without the scopes: whoever asks has chosen the nodes by them."""
    return tuple(Want(want.part, want.count) for want in way)


def _orders(way: Way) -> Iterator[Way]:
    """Arrangements to try, each once: the biggest first, the pickiest first, as they were written."""
    seen = set()
    for order in (
        tuple(sorted(way, key=hardest_first)),
        tuple(sorted(way, key=lambda want: (_choices(want), hardest_first(want)))),
        tuple(sorted(way, key=lambda want: (-want.part.amounts[1], hardest_first(want)))),
        way,
    ):
        parts = tuple(id(want.part) for want in order)
        if parts not in seen:
            seen.add(parts)
            yield order


def _choices(want: Want) -> int:
    return NO_BOUND if want.part.mask is None else sum(want.part.mask)


class _Scoped:
    """Places a way scope by scope. Domains tried are counted."""

    def __init__(self, board: Board, gang: Gang, horizon: Horizon) -> None:
        self.board, self.gang, self.horizon, self.left = board, gang, horizon, MOST_DOMAINS

    def place(self, way: Way, within: frozenset[int], depth: int = 0) -> bool:
        """Each scope in one domain; if a later scope fails, an earlier one moves on."""
        scope = next((want.scopes[depth] for want in way if len(want.scopes) > depth), None)
        if scope is None:
            return not way or _anywhere(self.board, self.gang, way, self.horizon, within, LEAST_STEPS)
        inner = tuple(w for w in way if len(w.scopes) > depth and w.scopes[depth].parts == scope.parts)
        rest = tuple(want for want in way if want not in inner)
        start = self.board.mark()
        for domain in self._domains(scope, within, inner):
            if self.left <= 0:
                break
            self.left -= 1
            if self.place(inner, domain, depth + 1) and self.place(rest, within, depth):
                return True
            self.board.rewind(start)
        return False

    def _domains(self, scope: Scope, within: frozenset[int], wants: Way) -> Iterator[frozenset[int]]:
        """The preferred level first, in every domain of the required one; then without it."""
        required, preferred = scope.constraint.required, scope.constraint.preferred
        choices = self.board.topology.choices
        outer = choices(required, scope, within, wants) if required else [within]
        if preferred:
            for domain in outer:
                yield from choices(preferred, scope, domain, wants)
        yield from outer


def hardest_first(want: Want) -> tuple[int, int, int, int]:
    gpu, cpu, memory = want.part.amounts
    return (-gpu, want.part.mask is None, -cpu, -memory)


def place(board: Board, gang: Gang, want: Want, horizon: Horizon, within: AbstractSet[int] | None) -> bool:
    """One replica after the other, each where it fits best. May leave some behind when it fails."""
    return place_most(board, gang, want, horizon, within) == want.count


def place_most(
    board: Board, gang: Gang, want: Want, horizon: Horizon, within: AbstractSet[int] | None
) -> int:
    """Place as many of the replicas as fit, each where it fits best; return how many."""
    part, free = want.part, want.part.free_indices()
    spots = equal_spots(board, part, want.count, horizon, within)
    for placed in range(want.count):
        index = next(free, None)
        spot = next(spots, None) if index is not None else None
        if index is None or spot is None:
            return placed
        board.put(gang, part, index, spot)
    return want.count
