"""Compare decayed usage of queues with their shares.

The total usage of siblings is divided among them by weight. A queue without weight is due nothing.
"""

import math
from collections.abc import Sequence

from scheduler.engine.board.ledger import KINDS, Ledger, QueueAccount, RelativeUsage, siblings
from scheduler.engine.model import FairShareMode, Pool

FLOOR = 0.5  # fraction of the possible usage: a lower total counts as this fraction
DIGITS = 9  # precision of relative usage


def memory_of(mode: FairShareMode) -> float:
    """Return the seconds of steady usage that count as history; 0 if history does not count."""
    if not mode.time_based or mode.k <= 0:
        return 0.0
    if mode.half_life is None:
        return float(mode.window or 0)
    seconds = mode.half_life / math.log(2)
    if mode.window is not None:
        seconds *= 1 - math.pow(2, -mode.window / mode.half_life)
    return seconds


def update_usage_history(pool: Pool, ledger: Ledger, capacity: Sequence[int], now: int) -> None:
    """Set the relative usage of every account, by resource, where history counts."""
    memory, left = memory_of(pool.fair_share), _left(pool.fair_share, now)
    for accounts in siblings(ledger.roots) if memory else ():
        parent = accounts[0].parent
        whole = parent.share if parent else capacity
        parts = [_pasts(accounts, kind, memory * whole[kind], left * whole[kind]) for kind in KINDS]
        for account, past in zip(accounts, zip(*parts, strict=True), strict=True):
            account.past = past
            account.cache.clear()
        accounts[0].sibling_cache.clear()


def _left(mode: FairShareMode, now: int) -> float:
    """Return the seconds until a calendar window resets the history."""
    if not mode.tumbling or not mode.window or mode.half_life is not None:
        return math.inf
    return mode.window - now % mode.window


def _pasts(accounts: Sequence[QueueAccount], kind: int, steady: float, left: float) -> list[RelativeUsage]:
    """Return the relative usage of siblings.

    `steady` is the usage that was possible if the parent's share had always been the current one. `left` is
    the usage that is still possible before the history is reset.
    """
    asking = wanting(accounts, kind)
    weights = weights_of(asking, kind)
    could = FLOOR * max(steady, *(account.entitlement.usage.parent[kind] for account in accounts))
    used = sum(account.entitlement.usage.used[kind] for account in asking)
    whole = max(could, used)
    mean, at_reset = (used / whole, (used + left) / whole) if whole else (0.0, math.inf)
    parts = (part(a.entitlement.usage.used[kind], whole, a, kind, weights) for a in accounts)
    return [RelativeUsage(round(used, DIGITS), mean, at_reset) for used in parts]


def part(amount: float, of: float, account: QueueAccount, kind: int, weights: float) -> float:
    """Return an amount relative to the account's weighted part of the total `of`; infinite without weight."""
    weight = account.entitlement.weights[kind]
    if weight <= 0:
        return math.inf
    return amount * weights / (of * weight) if of > 0 else 0.0


def weights_of(accounts: Sequence[QueueAccount], kind: int) -> float:
    return sum(account.entitlement.weights[kind] for account in accounts)


def wanting(accounts: Sequence[QueueAccount], kind: int) -> list[QueueAccount]:
    """Return the accounts that request any of the resource."""
    return [account for account in accounts if account.requested[kind] > 0]
