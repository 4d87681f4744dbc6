"""Make room for pending gangs by moving pods, by reclaiming from queues and by preempting workloads."""

from scheduler.engine.board.board import Board
from scheduler.engine.preemption.policies import Consolidate, Preempt, Reclaim
from scheduler.engine.preemption.preempt import preempt_for_pending


def consolidate(board: Board, choice: int) -> None:
    """Merge free blocks by moving running pods. No workload is evicted."""
    if board.pool.consolidation.enabled:
        preempt_for_pending(board, choice, Consolidate)


def reclaim(board: Board, choice: int) -> None:
    """Restore a queue's quota and fair share by evicting workloads of queues above theirs."""
    preempt_for_pending(board, choice, Reclaim)


def preempt(board: Board, choice: int) -> None:
    """Evict workloads for others of higher priority in the same project."""
    preempt_for_pending(board, choice, Preempt)
