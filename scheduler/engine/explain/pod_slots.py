"""Check whether a gang lacks only pod slots: pod limits of nodes, or spread limits of its roles."""

from collections import Counter

from scheduler.engine.board.board import Board
from scheduler.engine.board.gang import Arrangement, Gang, ReplicaRequest
from scheduler.engine.board.ledger import NO_BOUND
from scheduler.engine.placement.find_room import find_room, hardest_first, open_to, place_most
from scheduler.engine.placement.spots import Horizon
from scheduler.engine.plan import Numbers, Reason


def short_of_pod_slots(board: Board, gang: Gang, arrangement: Arrangement) -> tuple[Reason, Numbers] | None:
    """Return the reason if an arrangement fails only because of pod limits or spread limits, else None."""
    nodes = board.nodes
    arrangement = tuple(ReplicaRequest(need.part, need.count) for need in arrangement)
    if min(nodes.pods, default=0) < sum(need.count for need in arrangement):
        held, nodes.pods = nodes.pods, [NO_BOUND] * len(nodes.pods)
        fits = _fits(board, gang, arrangement)
        nodes.pods = held
        if fits:
            return Reason.WAITING_FOR_CAPACITY, _seats(board, gang, arrangement)
    apart = [need.part for need in arrangement if need.part.on is not None]
    if apart:
        counts = [part.on for part in apart]
        for part in apart:
            part.on = None
        fits = _fits(board, gang, arrangement)
        for part, count in zip(apart, counts, strict=True):
            part.on = count
        if fits:
            least = min(part.role.spread_per_node or 0 for part in apart)
            return Reason.FRAGMENTED, {**_seats(board, gang, arrangement), "spread_per_node": least}
    return None


def _fits(board: Board, gang: Gang, arrangement: Arrangement) -> bool:
    start = board.mark()
    fits = find_room(board, gang, arrangement, Horizon.LEAVING)
    board.rewind(start)
    return fits


def _seats(board: Board, gang: Gang, arrangement: Arrangement) -> Numbers:
    """Return the numbers of replicas that are requested and that fit now."""
    start, within = board.mark(), open_to(board, gang)
    requested = sum(need.count for need in arrangement)
    for need in sorted(arrangement, key=hardest_first):
        place_most(board, gang, need, Horizon.LEAVING, within)
    on_one = Counter(move.node for move in board.moves(start))
    board.rewind(start)
    result = on_one.total()
    return {
        "resource": "pods",
        "requested": requested,
        "free": result,
        "missing": requested - result,
        "biggest_block": max(on_one.values(), default=0),
    }
