"""Drop requests in one pool of workloads that this cycle placed in another."""

from scheduler.engine.board.board import Board
from scheduler.engine.board.gang import Gang
from scheduler.engine.board.ledger import KINDS
from scheduler.engine.fair_share.shares import divide_again
from scheduler.engine.fair_share.usage_history import settle_past


def stirred_elsewhere(board: Board) -> bool:
    """Whether the pool must be looked at again: who asked of it, or had its nodes kept, asks no more.

    The next cycle would find it so. Whose start was taken out of the plan again asks once more.
    """
    elsewhere = {name for name in board.served - board.evicted if _has_left(board.gangs.get(name))}
    if elsewhere == board.elsewhere:
        return False
    for name in sorted(elsewhere ^ board.elsewhere):
        _count(board, name, -1 if name in elsewhere else 1)
    board.elsewhere = elsewhere
    board.givable.clear()
    for peers in board.waiting.values():
        peers.found = {}  # it is said anew why they wait
    divide_again(board.pool, board.ledger, board.nodes.capacity())
    settle_past(board.pool, board.ledger, board.nodes.capacity(), board.now)
    return True


def _has_left(gang: Gang | None) -> bool:
    """It waited here, and what it was given does not stand here."""
    return gang is not None and gang.peers is not None and not gang.standing


def _count(board: Board, name: str, sign: int) -> None:
    gang = board.gangs[name]
    for account in gang.account.path:
        for kind in KINDS:
            account.requested[kind] += sign * gang.asks_more[kind]
