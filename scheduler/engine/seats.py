"""Here we ask whether a gang lacks only seats: pods a node may hold, replicas that may share one."""

from scheduler.engine.board import Board
from scheduler.engine.gang import Gang, Want, Way
from scheduler.engine.ledger import NO_BOUND
from scheduler.engine.placement import find_room, hardest_first, open_to
from scheduler.engine.plan import Numbers, Reason
from scheduler.engine.spots import Horizon, pick


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
    asked, on_one = sum(want.count for want in way), dict[int, int]()
    for want in sorted(way, key=hardest_first):
        for index, _ in zip(want.part.free_indices(), range(want.count), strict=False):
            spot = pick(board, want.part, Horizon.LEAVING, within)
            if spot is None:
                break
            board.put(gang, want.part, index, spot)
            on_one[spot.node] = on_one.get(spot.node, 0) + 1
    board.rewind(start)
    found = sum(on_one.values())
    return {
        "resource": "pods",
        "asked": asked,
        "free": found,
        "missing": asked - found,
        "biggest_block": max(on_one.values(), default=0),
    }
