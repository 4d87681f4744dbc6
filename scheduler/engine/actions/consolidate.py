"""Make one free block of several by moving work that runs, never by stopping it for good."""

from scheduler.engine.board import Board
from scheduler.engine.laws import Consolidate
from scheduler.engine.make_room import serve


def consolidate(board: Board, choice: int) -> None:
    if board.pool.consolidation.enabled:
        serve(board, choice, Consolidate)
