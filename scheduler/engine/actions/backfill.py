"""Hold nodes for the workload that has waited longest."""

from scheduler.engine.board.board import Board
from scheduler.engine.board.eligible import over_bounds, over_share
from scheduler.engine.board.gang import Gang, arrangements
from scheduler.engine.board.nodes import NodeHold
from scheduler.engine.placement.find_room import find_room
from scheduler.engine.placement.spots import Horizon

MAX_END_TIMES = 64  # end times of running workloads that are tried


def hold_nodes(board: Board, gang: Gang, requested: tuple[int, int, int]) -> None:
    """Hold nodes for the first blocked workload that is within its share and has waited long enough."""
    after = board.pool.reservation_after
    if after is None or board.cycle.backfill_hold is not None or board.now - gang.workload.submitted < after:
        return
    board.cycle.backfill_hold = _earliest(board, gang, requested)


def _earliest(board: Board, gang: Gang, requested: tuple[int, int, int]) -> NodeHold | None:
    """Return the nodes on which the gang first fits within its share as declared runtimes end.

    Workloads of its own project that will have ended by then do not count against its share. Otherwise, a
    workload that backfills held nodes would cost the gang those nodes.
    """
    ending: dict[int, list[Gang]] = {}
    for other in board.gangs.values():
        end = ends_at(other, board.now)
        if end is not None and other.stands:
            ending.setdefault(max(end, board.now), []).append(other)
    start = board.mark()
    try:
        for moment in sorted(ending)[:MAX_END_TIMES]:
            for other in sorted(ending[moment], key=lambda other: other.name):
                for part in other.parts:
                    for pod in tuple(part.live.values()):
                        board.drop(other, part, pod)
            if over_bounds(gang, requested) or over_share(gang, requested):
                continue
            for arrangement in arrangements(gang):
                before = board.mark()
                if find_room(board, gang, arrangement, Horizon.LEAVING):
                    nodes = frozenset(move.node for move in board.moves(before))
                    return NodeHold(gang.name, nodes, moment)
    finally:
        board.rewind(start)
    return None


def ends_at(gang: Gang, now: int) -> int | None:
    """Return the latest end time of the gang, started or starting now; None if no runtime is declared."""
    workload = gang.workload
    if workload.max_runtime is None:
        return None
    return (workload.started if workload.started is not None and gang.stands else now) + workload.max_runtime
