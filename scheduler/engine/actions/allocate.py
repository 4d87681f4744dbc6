"""Start what fits, disturbing no one."""

from collections.abc import Hashable

from scheduler.engine.board import Board, Numbers
from scheduler.engine.eligible import over_bounds, pending
from scheduler.engine.gang import Gang, amounts_of, ways
from scheduler.engine.order import Line
from scheduler.engine.placement import Horizon, find_room
from scheduler.engine.plan import Kind, Reason
from scheduler.engine.reasons import why_no_room
from scheduler.engine.shapes import shape


def allocate(board: Board, choice: int) -> None:
    refused: dict[Hashable, tuple[Reason, Numbers]] = {}
    for gang, asked, key in Line(pending(board, choice)):
        board.stood_in_line(gang, key)
        with board.trial(gang, otherwise=Reason.WAITING_FOR_CAPACITY) as trial:
            bound = over_bounds(gang, asked)
            if bound is not None:
                trial.refuse(*bound)
                continue
            kind_of = shape(gang)
            if kind_of in refused:
                trial.refuse(*refused[kind_of])
            elif _start(board, gang):
                trial.keep(Kind.START)
            else:
                refused[kind_of] = why_no_room(board, gang)
                trial.refuse(*refused[kind_of])


def _start(board: Board, gang: Gang) -> bool:
    for horizon in Horizon:
        if horizon is Horizon.LEAVING and not board.nodes.leaving:
            continue
        if horizon is Horizon.BOOTING and not any(board.nodes.booting):
            continue
        for way in ways(gang):
            if over_bounds(gang, amounts_of(way)) is None and find_room(board, gang, way, horizon):
                return True
    return False
