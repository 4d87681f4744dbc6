"""Actions in the order in which they run, least disruptive first."""

from collections.abc import Callable, Mapping

from scheduler.engine.actions.allocate import start
from scheduler.engine.actions.grow import grow
from scheduler.engine.actions.preempt import consolidate, preempt, reclaim
from scheduler.engine.actions.shrink import grow_by_growth, make_room_by_growth
from scheduler.engine.actions.stale_gangs import stale_gangs
from scheduler.engine.board.board import Board

Step = Callable[[Board, int], None]  # handles workloads whose nth choice is this pool
Action = tuple[Step, ...]  # each step runs for all first choices, then all second ones, before the next step

ACTIONS: Mapping[str, Action] = {
    "allocate": (start, grow),
    "shrink": (make_room_by_growth, grow_by_growth),
    "consolidate": (consolidate,),
    "reclaim": (reclaim,),
    "preempt": (preempt,),
    "stale_gangs": (stale_gangs,),
}
