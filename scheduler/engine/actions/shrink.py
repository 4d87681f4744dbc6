"""Scale workloads down for the minimum of a gang, or for growth within another queue's fair share."""

from scheduler.engine.actions.grow import elastic, steps
from scheduler.engine.actions.load_limit import hold_to_load_limit
from scheduler.engine.actions.overcommit import overcommit
from scheduler.engine.board.board import Board
from scheduler.engine.board.eligible import over_share
from scheduler.engine.board.gang import BoardRole, Gang, amounts_of, most_now
from scheduler.engine.plan import Eviction, Kind, Reason
from scheduler.engine.preemption.policies import Shrink, ShrinkForGrowth
from scheduler.engine.preemption.preempt import preempt_for_growth, preempt_for_pending
from scheduler.engine.preemption.victims import single


def make_room_by_growth(board: Board, choice: int) -> None:
    _bring_down_to_max(board, choice)
    hold_to_load_limit(board, choice)
    preempt_for_pending(board, choice, Shrink)
    overcommit(board, choice)


def _bring_down_to_max(board: Board, choice: int) -> None:
    for gang in board.incomplete:
        if gang.choice == choice and any(_too_many(gang, part) for part in gang.parts):
            with board.trial(gang, otherwise=Reason.WAITING_FOR_GANG) as trial:
                trial.accept(Kind.SHRINK, "more replicas than its maximum", (_cut(board, gang),))


def _too_many(gang: Gang, part: BoardRole) -> int:
    """Return the number of live replicas above the maximum, or above what the leading role allows."""
    return max(0, min(part.count - most_now(gang, part), len(part.live)))


def _cut(board: Board, gang: Gang) -> Eviction:
    """Remove the newest replicas above the maximum and return the eviction."""
    pods, lost_gpu_seconds = [], 0
    for part in gang.parts:
        for index in sorted(part.live, reverse=True)[: _too_many(gang, part)]:
            victim = single(board, gang, part, part.live[index])
            board.drop(gang, part, part.live[index])
            pods.append((part.role.name, index))
            lost_gpu_seconds += victim.lost_gpu_seconds
    rule = "a workload may not run more replicas than its maximum"
    return Eviction(
        Kind.SHRINK, gang.name, None, rule, tuple(pods), whole=False, lost_gpu_seconds=lost_gpu_seconds
    )


def grow_by_growth(board: Board, choice: int) -> None:
    """Grow gangs within their fair share by scaling down gangs beyond their own."""
    for gang in elastic(board, choice):
        going = True
        while going:
            due = [step for step in steps(gang) if over_share(gang, amounts_of(step.arrangement)) is None]
            going = any(preempt_for_growth(board, gang, step.arrangement, ShrinkForGrowth) for step in due)
