"""Give a queue its quota and fair share back, from those who hold more than theirs."""

from scheduler.engine.board import Board
from scheduler.engine.laws import Reclaim
from scheduler.engine.make_room import serve


def reclaim(board: Board, choice: int) -> None:
    serve(board, choice, Reclaim)
