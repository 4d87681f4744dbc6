"""The actions, in the order they run: the gentlest first."""

from collections.abc import Callable, Mapping

from scheduler.engine.actions.allocate import allocate
from scheduler.engine.board import Board

Action = Callable[[Board, int], None]

ACTIONS: Mapping[str, Action] = {
    "allocate": allocate,
}
