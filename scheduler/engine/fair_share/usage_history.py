"""Relative usage: a queue's decayed usage, compared with its weighted share of the usage of all sibling
queues.
"""

import math
from collections.abc import Sequence

from scheduler.engine.board.ledger import KINDS, Ledger, QueueAccount, RelativeUsage, sibling_sets
from scheduler.engine.model import FairShareMode, Pool

MIN_USAGE_FRACTION = 0.5  # lower bound on the total usage, as a fraction of the possible usage
USAGE_DIGITS = 9  # decimal places of relative usage


def history_seconds(mode: FairShareMode) -> float:
    """Return the effective length of the usage history in seconds, or 0 if history does not count."""
    if not mode.time_based or mode.k <= 0:
        return 0.0
    if mode.half_life is None:
        return float(mode.window or 0)
    seconds = mode.half_life / math.log(2)
    if mode.window is not None:
        seconds *= 1 - math.pow(2, -mode.window / mode.half_life)
    return seconds


def update_usage_history(pool: Pool, ledger: Ledger, capacity: Sequence[int], now: int) -> None:
    """Set every account's relative usage of each resource. Do nothing if fair shares ignore past usage."""
    history, remaining = history_seconds(pool.fair_share), _seconds_until_reset(pool.fair_share, now)
    for accounts in sibling_sets(ledger.roots) if history else ():
        parent = accounts[0].parent
        total = parent.share if parent else capacity
        parts = [
            _usages_relative_to_pool(accounts, kind, parent)
            if parent and parent.divided[kind]
            else _sibling_relative_usages(accounts, kind, history * total[kind], remaining * total[kind])
            for kind in KINDS
        ]
        for account, relative_usage in zip(accounts, zip(*parts, strict=True), strict=True):
            account.relative_usage = relative_usage
            account.cache.clear()
        accounts[0].sibling_cache.clear()


def _seconds_until_reset(mode: FairShareMode, now: int) -> float:
    """Return the seconds until a calendar window resets history, or infinity if there is no such window."""
    if not mode.tumbling or not mode.window or mode.half_life is not None:
        return math.inf
    return mode.window - now % mode.window


def _sibling_relative_usages(
    accounts: Sequence[QueueAccount], kind: int, steady: float, remaining: float
) -> list[RelativeUsage]:
    """Return the relative usage of sibling queues.

    `steady` is the usage that would have been possible if the parent had always had its current share.
    `remaining` is the usage that is still possible before history is reset.
    """
    requesting = accounts_with_requests(accounts, kind)
    weights = sum_weights(requesting, kind)
    min_usage = MIN_USAGE_FRACTION * max(
        steady, *(account.pool_quota.usage.parent[kind] for account in accounts)
    )
    used = sum(account.pool_quota.usage.used[kind] for account in requesting)
    total = max(min_usage, used)
    mean, at_reset = (used / total, (used + remaining) / total) if total else (0.0, math.inf)
    parts = (
        usage_relative_to_share(a.pool_quota.usage.used[kind], total, a, kind, weights) for a in accounts
    )
    return [RelativeUsage(round(used, USAGE_DIGITS), mean, at_reset) for used in parts]


def _usages_relative_to_pool(
    accounts: Sequence[QueueAccount], kind: int, department: QueueAccount
) -> list[RelativeUsage]:
    """Return the relative usage of each project of a department, as if the projects shared the whole pool
    with other departments.
    """
    requesting = accounts_with_requests(accounts, kind)
    weights, (used, mean, at_reset) = sum_weights(requesting, kind), department.relative_usage[kind]
    total = sum(account.pool_quota.usage.used[kind] for account in requesting)
    parts = (
        usage_relative_to_share(used * a.pool_quota.usage.used[kind], total, a, kind, weights)
        for a in accounts
    )
    return [RelativeUsage(round(part, USAGE_DIGITS), mean, at_reset) for part in parts]


def usage_relative_to_share(
    amount: float, total: float, account: QueueAccount, kind: int, weights: float
) -> float:
    """Return `amount` divided by the account's weighted share of `total`, or infinity if its weight is 0.

    `weights` is the sum of all weights.
    """
    weight = account.pool_quota.weights[kind]
    if weight <= 0:
        return math.inf
    return amount * weights / (total * weight) if total > 0 else 0.0


def sum_weights(accounts: Sequence[QueueAccount], kind: int) -> float:
    return sum(account.pool_quota.weights[kind] for account in accounts)


def accounts_with_requests(accounts: Sequence[QueueAccount], kind: int) -> list[QueueAccount]:
    return [account for account in accounts if account.requested[kind] > 0]
