"""Select workloads that may be considered, and the bounds that block the others."""

from collections.abc import Sequence

from berth.core.amounts import RESOURCES
from scheduler.engine.board.board import Board
from scheduler.engine.board.gang import Gang, Peers
from scheduler.engine.board.ledger import KINDS, NO_BOUND, Account, beyond_quota, over
from scheduler.engine.model import Workload
from scheduler.engine.plan import Numbers, Reason

_LOWEST, _ELASTIC = "lowest priority", "elastic"


def pending(board: Board, choice: int | None = None) -> list[Peers]:
    """Who could start now, peers together; of those for whom this pool is that choice, or of all."""
    for peers in board.waiting.values():
        peers.at = 0  # who had started may wait again
    return [
        peers
        for peers in board.waiting.values()
        if (choice is None or peers.choice == choice) and speaker(board, peers) is not None
    ]


def speaker(board: Board, peers: Peers) -> Gang | None:
    """The first of them that still waits."""
    gangs = peers.gangs
    while peers.at < len(gangs):
        if still_pending(board, gangs[peers.at]):
            return gangs[peers.at]
        peers.at += 1
    return None


def delay_left(board: Board, workload: Workload) -> int:
    """How long it may not evict. Its own delay always counts, the pool's while the pool could still grow."""
    delay = workload.preemption_delay
    if delay is None:
        delay = board.pool.preemption_delay if board.can_grow else 0
    return max(0, workload.submitted + delay - board.now) if delay > 0 else 0


def still_pending(board: Board, gang: Gang) -> bool:
    if gang.name in board.served or gang.name in board.evicted:
        return False
    return not (gang.standing and gang.is_whole)


def over_bounds(gang: Gang, asked: Sequence[int]) -> tuple[Reason, Numbers] | None:
    """The first limit or quota, project first, that the workload would pass."""
    for account in gang.account.path:
        kind = over(account.allocated, account.cap, asked) if account.capped else None
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
        "requested": asked[kind],
        "allocated": held[kind],
        "bound": bound[kind] if bound[kind] < NO_BOUND else None,
        "missing": held[kind] + asked[kind] - bound[kind],
    }


def over_share(gang: Gang, asked: Sequence[int]) -> tuple[Reason, Numbers] | None:
    """Why the workload may not take from others: its project would stand above quota and fair share."""
    return _over_share(gang.account, asked)


def beyond_due(gang: Gang, asked: Sequence[int]) -> tuple[Reason, Numbers] | None:
    """Who on its path would stand above quota and fair share: its project, or its department for good.

    A department that stands there by what a sibling borrows is none: that may be reclaimed.
    """
    kinds = tuple(kind for kind in KINDS if asked[kind] > 0)
    for number, step in enumerate(gang.account.path):
        found = _over_share(step, asked)
        own = gang.account.path[number - 1]
        if found is not None and not (
            number and any(a is not own for a in beyond_quota(own, step.children, kinds))
        ):
            return found
    return None


def _over_share(account: Account, asked: Sequence[int]) -> tuple[Reason, Numbers] | None:
    kind = over(account.allocated, account.entitled, asked)
    if kind is None:
        return None
    return Reason.OVER_FAIR_SHARE, {
        **_numbers(account, account.allocated, account.entitled, kind, asked),
        "share": account.share[kind],
        "quota": account.quota[kind] if account.quota[kind] < NO_BOUND else None,
    }


def lowest_priority(board: Board, account: Account) -> int | None:
    """Of what stands in a project; looked for again when what it holds has changed."""
    if _LOWEST not in account.recalled:
        standing = board.by_project.get(account, {}).values()
        account.recalled[_LOWEST] = min((gang.workload.priority for gang in standing), default=None)
    found: int | None = account.recalled[_LOWEST]
    return found


def has_elastic(board: Board, account: Account) -> bool:
    """Whether anything that stands in a project may ever grow, and so be made smaller."""
    if _ELASTIC not in account.recalled:
        standing = board.by_project.get(account, {}).values()
        account.recalled[_ELASTIC] = any(gang.may_grow for gang in standing)
    found: bool = account.recalled[_ELASTIC]
    return found
