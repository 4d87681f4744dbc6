"""Scale workloads down so that pending gangs can start or other workloads can scale up."""

from scheduler.engine.actions.load_limit import enforce_load_limit
from scheduler.engine.actions.scale_up import elastic_gangs, scale_up_steps
from scheduler.engine.board.board import Board
from scheduler.engine.board.eligible import exceeded_share
from scheduler.engine.board.gang import BoardRole, Gang, current_max, total_request
from scheduler.engine.placement.overcommit import place_overcommitted
from scheduler.engine.plan import Eviction, Kind, Reason
from scheduler.engine.preemption.policies.scaling import ScaleDown, ScaleDownForScaleUp
from scheduler.engine.preemption.preempt import preempt_for_pending_gangs, preempt_for_scale_up
from scheduler.engine.preemption.victims.units import single_pod_victim


def scale_down_for_pending_gangs(board: Board, choice: int) -> None:
    _scale_down_to_max(board, choice)
    enforce_load_limit(board, choice)
    preempt_for_pending_gangs(board, choice, ScaleDown)
    place_overcommitted(board, choice)


def _scale_down_to_max(board: Board, choice: int) -> None:
    for gang in board.incomplete_gangs:
        if gang.choice == choice and any(_excess_replicas(gang, part) for part in gang.parts):
            with board.trial(gang, default_reason=Reason.WAITING_FOR_GANG) as trial:
                trial.accept(Kind.SHRINK, "more replicas than its maximum", (_remove_excess(board, gang),))


def _excess_replicas(gang: Gang, part: BoardRole) -> int:
    return max(0, min(part.replica_count - current_max(gang, part), len(part.live)))


def _remove_excess(board: Board, gang: Gang) -> Eviction:
    """Remove the newest replicas above the maximum, and return the audit record."""
    pods, lost_gpu_seconds = [], 0
    for part in gang.parts:
        for index in sorted(part.live, reverse=True)[: _excess_replicas(gang, part)]:
            victim = single_pod_victim(board, gang, part, part.live[index])
            board.remove_pod(gang, part, part.live[index])
            pods.append((part.role.name, index))
            lost_gpu_seconds += victim.lost_gpu_seconds
    rule = "a workload may not run more replicas than its maximum"
    return Eviction(
        Kind.SHRINK, gang.name, None, rule, tuple(pods), whole=False, lost_gpu_seconds=lost_gpu_seconds
    )


def scale_down_for_scale_up(board: Board, choice: int) -> None:
    """Scale up gangs within their fair share by scaling down gangs over their fair share."""
    for gang in elastic_gangs(board, choice):
        progressed = True
        while progressed:
            allowed_steps = [
                step
                for step in scale_up_steps(gang)
                if exceeded_share(gang, total_request(step.arrangement)) is None
            ]
            progressed = any(
                preempt_for_scale_up(board, gang, step.arrangement, ScaleDownForScaleUp)
                for step in allowed_steps
            )
