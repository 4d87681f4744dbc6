"""The actions, in the order they run: the gentlest first."""

from collections.abc import Callable, Mapping

from scheduler.engine.actions.allocate import allocate
from scheduler.engine.actions.consolidate import consolidate
from scheduler.engine.actions.preempt import preempt
from scheduler.engine.actions.reclaim import reclaim
from scheduler.engine.actions.shrink import shrink
from scheduler.engine.actions.stale_gangs import stale_gangs
from scheduler.engine.board import Board

Action = Callable[[Board, int], None]

ACTIONS: Mapping[str, Action] = {
    "allocate": allocate,
    "shrink": shrink,
    "consolidate": consolidate,
    "reclaim": reclaim,
    "preempt": preempt,
    "stale_gangs": stale_gangs,
}
