"""Drop the requests of workloads that this cycle has placed in another pool."""

from scheduler.engine.board.board import Board
from scheduler.engine.board.gang import Gang
from scheduler.engine.board.ledger import KINDS
from scheduler.engine.fair_share.department_turns import update_turns
from scheduler.engine.fair_share.shares import divide_shares


def refresh_other_pools(board: Board) -> bool:
    """Drop the requests of workloads placed in other pools. Return whether any request changed."""
    placed_in_other_pool = {
        name
        for name in board.served - board.cycle.evicted
        if _was_placed_in_another_pool(board.gangs.get(name))
    }
    if placed_in_other_pool == board.cycle.placed_in_other_pool:
        return False
    for name in sorted(placed_in_other_pool ^ board.cycle.placed_in_other_pool):
        _adjust_request(board, name, -1 if name in placed_in_other_pool else 1)
    board.cycle.placed_in_other_pool = placed_in_other_pool
    board.cycle.reclaimable_cache.clear()
    for group in board.pending_groups.values():
        group.reasons = {}  # the next round records the reasons again
    divide_shares(board.pool, board.ledger, board.nodes.capacity())
    update_turns(board)
    return True


def _was_placed_in_another_pool(gang: Gang | None) -> bool:
    """Return whether the gang was pending in this pool and still has no pods in it."""
    return gang is not None and gang.group is not None and not gang.pod_count


def _adjust_request(board: Board, name: str, sign: int) -> None:
    gang = board.gangs[name]
    for account in gang.account.path:
        for kind in KINDS:
            account.requested[kind] += sign * gang.extra_request[kind]
