"""Engine actions in the order they run, least disruptive first."""

from collections.abc import Callable, Mapping

from scheduler.engine.actions.allocate import start_gangs
from scheduler.engine.actions.preempt import consolidate, preempt, reclaim, reclaim_for_scale_up
from scheduler.engine.actions.scale_down import scale_down_for_pending_gangs, scale_down_for_scale_up
from scheduler.engine.actions.scale_up import scale_up
from scheduler.engine.actions.stale_gangs import stop_stale_gangs
from scheduler.engine.board.board import Board

# A step handles the workloads that list the board's pool at position `choice`.
Step = Callable[[Board, int], None]
# Each step runs for all workloads' first pools, then for their second pools, and so on.
Action = tuple[Step, ...]

ACTIONS: Mapping[str, Action] = {
    "allocate": (start_gangs, scale_up),
    "shrink": (scale_down_for_pending_gangs, scale_down_for_scale_up),
    "consolidate": (consolidate,),
    "reclaim": (reclaim, reclaim_for_scale_up),
    "preempt": (preempt,),
    "stale_gangs": (stop_stale_gangs,),
}
