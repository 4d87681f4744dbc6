"""Make room for pending gangs: by moving pods, from queues above their share, and from lower priorities."""

from scheduler.engine.board.board import Board
from scheduler.engine.preemption.policies import Consolidate, Preempt, Reclaim
from scheduler.engine.preemption.preempt import preempt_for_pending


def consolidate(board: Board, choice: int) -> None:
    """Make one free block of several by moving running pods, never by evicting a workload."""
    if board.pool.consolidation.enabled:
        preempt_for_pending(board, choice, Consolidate)


def reclaim(board: Board, choice: int) -> None:
    """Restore a queue's quota and fair share from queues that hold more than theirs."""
    preempt_for_pending(board, choice, Reclaim)


def preempt(board: Board, choice: int) -> None:
    """Evict lower priorities for higher ones inside a project."""
    preempt_for_pending(board, choice, Preempt)
