"""Obstacles to evicting for a preemptor, found before any eviction is tried."""

from scheduler.engine.board.board import Board
from scheduler.engine.board.eligible import delay_left, over_bounds, over_firm_quota, over_share
from scheduler.engine.board.gang import Gang, amounts_of, ways
from scheduler.engine.plan import Numbers, Reason
from scheduler.engine.preemption.bounds import nothing_but, reach
from scheduler.engine.preemption.policy import Law
from scheduler.engine.preemption.selection import Taker

Obstacle = tuple[Reason, Numbers]
Asked = tuple[int, int, int]


def obstacle(board: Board, law: Law) -> Obstacle | None:
    """What no taking could cure."""
    if not law.may_evict():
        return over_share(law.gang, law.asked) or (Reason.NO_RECLAIMABLE_RESOURCES, {})
    return _out_of_bounds(board, law.gang, law.asked, type(law))


def no_use(board: Board, gang: Gang, make_law: type[Law]) -> Obstacle | None:
    """Why the law cannot help the gang, whichever way it is to be made whole; None: it might."""
    if gang.simple:
        asked = gang.asked
        beyond = _beyond_share(gang, asked)
        if beyond is not None:
            if make_law.needs_share(board):
                return beyond
            if make_law.finds_nothing_beyond_share(board, gang):
                return _out_of_bounds(board, gang, asked, make_law) or nothing_but(board.nodes.free(), asked)
    first: Obstacle | None = None
    for way in ways(gang):
        law = make_law(board, gang, amounts_of(way))
        short = obstacle(board, law) or reach(Taker(board, law))
        if short is None:
            return None
        first = first or short
    return first


def _beyond_share(gang: Gang, asked: Asked) -> Obstacle | None:
    """Counted once for all who ask for as much, until what its project holds changes."""
    recalled, key = gang.account.recalled, ("beyond", asked)
    if key not in recalled:
        recalled[key] = over_share(gang, asked)
    found: Obstacle | None = recalled[key]
    return found


def _out_of_bounds(board: Board, gang: Gang, asked: Asked, law: type[Law]) -> Obstacle | None:
    firm = over_firm_quota(gang, asked)
    if firm is not None:
        return firm
    bound = over_bounds(gang, asked)
    if bound is not None and bound[0] not in law.relieves:
        return bound
    wait = delay_left(board, gang.workload)
    if wait:
        return Reason.IN_PREEMPTION_DELAY, {"seconds": wait}
    return None
