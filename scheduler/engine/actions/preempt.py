"""Let a higher priority go before a lower one, inside a project."""

from scheduler.engine.board import Board
from scheduler.engine.laws import Preempt
from scheduler.engine.make_room import serve


def preempt(board: Board, choice: int) -> None:
    serve(board, choice, Preempt)
