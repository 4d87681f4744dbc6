"""Make room for pending gangs by consolidation, reclaim and preemption."""

from scheduler.engine.board.board import Board
from scheduler.engine.preemption.policies import Consolidate, Preempt, Reclaim
from scheduler.engine.preemption.preempt import preempt_for_pending


def consolidate(board: Board, choice: int) -> None:
    """Move running pods to merge free blocks, without evicting any workload."""
    if board.pool.consolidation.enabled:
        preempt_for_pending(board, choice, Consolidate)


def reclaim(board: Board, choice: int) -> None:
    """Evict workloads of queues over their quota or fair share for queues below theirs."""
    preempt_for_pending(board, choice, Reclaim)


def preempt(board: Board, choice: int) -> None:
    """Evict workloads for higher-priority workloads of the same project."""
    preempt_for_pending(board, choice, Preempt)
