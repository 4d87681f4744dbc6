"""Whether a gang lacks only seats: pods that a node may hold, replicas that may share one."""

from collections import Counter

from scheduler.engine.board.board import Board
from scheduler.engine.board.gang import Gang, Want, Way
from scheduler.engine.board.ledger import NO_BOUND
from scheduler.engine.placement.find_room import find_room, hardest_first, open_to, place_most
from scheduler.engine.placement.spots import Horizon
from scheduler.engine.plan import Numbers, Reason


def too_few_seats(board: Board, gang: Gang, way: Way) -> tuple[Reason, Numbers] | None:
    """Of a way that finds no room: whether it would, were it not for the pods or for the spread."""
    nodes = board.nodes
    way = tuple(Want(want.part, want.count) for want in way)
    if min(nodes.pods, default=0) < sum(want.count for want in way):
        held, nodes.pods = nodes.pods, [NO_BOUND] * len(nodes.pods)
        fits = _fits(board, gang, way)
        nodes.pods = held
        if fits:
            return Reason.WAITING_FOR_CAPACITY, _seats(board, gang, way)
    apart = [want.part for want in way if want.part.on is not None]
    if apart:
        counts = [part.on for part in apart]
        for part in apart:
            part.on = None
        fits = _fits(board, gang, way)
        for part, count in zip(apart, counts, strict=True):
            part.on = count
        if fits:
            least = min(part.role.spread_per_node or 0 for part in apart)
            return Reason.FRAGMENTED, {**_seats(board, gang, way), "spread_per_node": least}
    return None


def _fits(board: Board, gang: Gang, way: Way) -> bool:
    start = board.mark()
    fits = find_room(board, gang, way, Horizon.LEAVING)
    board.rewind(start)
    return fits


def _seats(board: Board, gang: Gang, way: Way) -> Numbers:
    """How many of its replicas find a place as things are."""
    start, within = board.mark(), open_to(board, gang)
    asked = sum(want.count for want in way)
    for want in sorted(way, key=hardest_first):
        place_most(board, gang, want, Horizon.LEAVING, within)
    on_one = Counter(move.node for move in board.moves(start))
    board.rewind(start)
    found = on_one.total()
    return {
        "resource": "pods",
        "requested": asked,
        "free": found,
        "missing": asked - found,
        "biggest_block": max(on_one.values(), default=0),
    }
