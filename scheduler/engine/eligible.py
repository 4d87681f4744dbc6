"""Here we sort out who may be considered at all, and which bounds stand in the way."""

from collections.abc import Sequence

from berth.core.amounts import RESOURCES
from scheduler.engine.board import Board, Numbers
from scheduler.engine.gang import Gang
from scheduler.engine.ledger import NO_BOUND, Account, over
from scheduler.engine.plan import Reason


def pending(board: Board, choice: int) -> list[Gang]:
    """Gangs below their minimum that could start now, for which this pool is that choice."""
    return [gang for gang in board.waiting if gang.choice == choice and still_pending(board, gang)]


def still_pending(board: Board, gang: Gang) -> bool:
    if gang.name in board.served or gang.name in board.evicted:
        return False
    return not (gang.is_whole and gang.stands)


def over_bounds(gang: Gang, asked: Sequence[int]) -> tuple[Reason, Numbers] | None:
    """The first limit or quota, project first, that the workload would pass."""
    for account in gang.account.path:
        kind = over(account.allocated, account.cap, asked)
        if kind is not None:
            reason = Reason.DEPARTMENT_LIMIT if account.children else Reason.PROJECT_LIMIT
            return reason, _numbers(account, account.allocated, account.cap, kind, asked)
    return over_firm_quota(gang, asked)


def over_firm_quota(gang: Gang, asked: Sequence[int]) -> tuple[Reason, Numbers] | None:
    """Where non-preemptible work would stand above quota, which no taking could cure."""
    if gang.firm:
        for account in gang.account.path:
            kind = over(account.firm, account.quota, asked)
            if kind is not None:
                reason = Reason.DEPARTMENT_OVERSOLD if account.children else Reason.NON_PREEMPTIBLE_OVER_QUOTA
                return reason, _numbers(account, account.firm, account.quota, kind, asked)
    return None


def _numbers(
    account: Account, held: Sequence[int], bound: Sequence[int], kind: int, asked: Sequence[int]
) -> Numbers:
    return {
        "queue": account.name,
        "resource": RESOURCES[kind],
        "asked": asked[kind],
        "allocated": held[kind],
        "bound": bound[kind] if bound[kind] < NO_BOUND else None,
        "missing": held[kind] + asked[kind] - bound[kind],
    }


def over_share(gang: Gang, asked: Sequence[int]) -> tuple[Reason, Numbers] | None:
    """Why the workload may not take from others: its project would stand above quota and fair share."""
    account = gang.account
    kind = over(account.allocated, account.entitled, asked)
    if kind is None:
        return None
    return Reason.OVER_FAIR_SHARE, {
        **_numbers(account, account.allocated, account.entitled, kind, asked),
        "share": account.share[kind],
        "quota": account.quota[kind] if account.quota[kind] < NO_BOUND else None,
    }
