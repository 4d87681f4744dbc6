"""Hold nodes for the workload that has waited longest."""

from scheduler.engine.board.board import Board
from scheduler.engine.board.eligible import exceeded_bound, exceeded_share
from scheduler.engine.board.gang import Gang, arrangements
from scheduler.engine.board.nodes import NodeHold
from scheduler.engine.placement.find_room import find_room
from scheduler.engine.placement.spots import Horizon

MAX_END_TIMES = 64  # maximum number of end times tried


def hold_nodes(board: Board, gang: Gang, requested: tuple[int, int, int]) -> None:
    """Hold nodes for a blocked workload within its share, if it has waited long enough."""
    after = board.pool.reservation_after
    if after is None or board.cycle.backfill_hold is not None or board.now - gang.workload.submitted < after:
        return
    board.cycle.backfill_hold = _find_earliest_hold(board, gang, requested)


def _find_earliest_hold(board: Board, gang: Gang, requested: tuple[int, int, int]) -> NodeHold | None:
    """Return a hold on the nodes where the gang first fits, once declared runtimes have ended.

    Workloads of its project that will have ended by then do not count against the fair share.
    Otherwise, a workload that backfills held nodes would cost the gang those nodes.
    """
    ending: dict[int, list[Gang]] = {}
    for other in board.gangs.values():
        end = latest_end(other, board.now)
        if end is not None and other.has_pods:
            ending.setdefault(max(end, board.now), []).append(other)
    start = board.mark()
    try:
        for moment in sorted(ending)[:MAX_END_TIMES]:
            for other in sorted(ending[moment], key=lambda other: other.name):
                for part in other.parts:
                    for pod in tuple(part.live.values()):
                        board.drop(other, part, pod)
            if exceeded_bound(gang, requested) or exceeded_share(gang, requested):
                continue
            for arrangement in arrangements(gang):
                before = board.mark()
                if find_room(board, gang, arrangement, Horizon.LEAVING):
                    nodes = frozenset(move.node for move in board.moves(before))
                    return NodeHold(gang.name, nodes, moment)
    finally:
        board.rewind(start)
    return None


def latest_end(gang: Gang, now: int) -> int | None:
    """Return the gang's latest end time if it runs or starts now; None without `max_runtime`."""
    workload = gang.workload
    if workload.max_runtime is None:
        return None
    return (
        workload.started if workload.started is not None and gang.has_pods else now
    ) + workload.max_runtime
