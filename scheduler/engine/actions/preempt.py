"""Make room for pending gangs by consolidation, reclaim and preemption."""

from scheduler.engine.actions.scale_up import elastic_gangs, scale_up_steps
from scheduler.engine.board.board import Board
from scheduler.engine.board.gang import total_request
from scheduler.engine.preemption.policies.pending import Consolidate, Preempt, Reclaim
from scheduler.engine.preemption.policies.scaling import ReclaimForScaleUp
from scheduler.engine.preemption.preempt import preempt_for_pending_gangs, preempt_for_scale_up

MAX_REPLICAS = 64  # maximum number of replicas in one scale-up step


def consolidate(board: Board, choice: int) -> None:
    """Make room for pending gangs by moving running pods, without preempting or reclaiming workloads."""
    if board.pool.consolidation.enabled:
        preempt_for_pending_gangs(board, choice, Consolidate)


def reclaim(board: Board, choice: int) -> None:
    """Evict workloads from queues over their quota or fair share in favour of queues below theirs."""
    preempt_for_pending_gangs(board, choice, Reclaim)


def reclaim_for_scale_up(board: Board, choice: int) -> None:
    """Scale up gangs within their quota by evicting workloads from over-quota queues."""
    for gang in elastic_gangs(board, choice):
        # One step of many replicas may need fewer evictions than many steps of one replica each.
        replicas = min(MAX_REPLICAS, max(part.role.max - part.replica_count for part in gang.parts))
        while replicas:
            steps = [
                step
                for step in scale_up_steps(gang, replicas)
                if ReclaimForScaleUp.stays_within_quota(gang, total_request(step.arrangement))
            ]
            if not any(
                preempt_for_scale_up(board, gang, step.arrangement, ReclaimForScaleUp) for step in steps
            ):
                replicas //= 2


def preempt(board: Board, choice: int) -> None:
    """Evict workloads in favour of higher-priority workloads in the same project."""
    preempt_for_pending_gangs(board, choice, Preempt)
