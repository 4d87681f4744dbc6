"""Here we give turns: where shares are too small for what queues ask for, the most starved goes next.

Decayed use is compared per weight, so that 1 is a queue's due over time. A queue is taken from only when it
stands clearly above the newcomer's: what it used while the other waited must outweigh the cost of changing.
"""

from collections.abc import Sequence

from scheduler.engine.board import Board
from scheduler.engine.eligible import pending
from scheduler.engine.gang import Gang
from scheduler.engine.ledger import Account
from scheduler.engine.order import in_project

HYSTERESIS = 0.4  # of a queue's due; two equal queues change about three times in a half-life


class Turns:
    """Who owes whom a turn, in the resource the newcomer asks for most of: GPUs, where it asks for any."""

    def __init__(self, board: Board, gang: Gang, kind: int) -> None:
        self._board, self._gang, self._kind = board, gang, kind
        settings = board.pool.fair_share
        decays = settings.half_life is not None or settings.window is not None
        self._waiting = pending(board, gang.choice) if settings.time_based and decays else []
        self.on = bool(self._waiting) and is_head(gang, self._waiting)

    def owes(self, mine: Account, theirs: Account) -> bool:
        """Whether mine is the most starved of its siblings that want something, and theirs had its turn."""
        if not self.on:
            return False
        able = {account for other in self._waiting for account in other.account.path}
        wanting = [account for account in self._siblings(mine) if account in able or account is mine]
        starved = min(wanting, key=lambda a: (self._use(a), a.created, a.name))
        had, has = self._use(theirs), self._use(mine)
        return starved is mine and has < 1 < had and had - has > HYSTERESIS

    def _siblings(self, account: Account) -> Sequence[Account]:
        return account.parent.children if account.parent else self._board.ledger.roots

    def _use(self, account: Account) -> float:
        """Decayed use against what the weight entitles to; 1 is exactly that."""
        siblings = [a for a in self._siblings(account) if a.requested[self._kind] > 0 or a is account]
        weights = sum(a.entitlement.weights[self._kind] for a in siblings)
        due = account.entitlement.weights[self._kind] / weights if weights else 0.0
        used = account.entitlement.usage.normalised(self._kind)
        return used / due if due > 0 else (float("inf") if used else 0.0)


def is_head(gang: Gang, waiting: Sequence[Gang]) -> bool:
    """Whether it is the next of its project."""
    return (
        min((other for other in waiting if other.account is gang.account), key=in_project, default=gang)
        is gang
    )
