"""Quotas and limits that several pools share.

While the engine decides about one pool, the pool's queues can use what the other pools of the group leave
unused.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from berth.core.values.amounts import Bounds
from scheduler.engine.board.board import Board
from scheduler.engine.board.ledger import QueueAccount, QueueGroup, finite_bounds
from scheduler.engine.board.order import gang_sort_key
from scheduler.engine.fair_share.department_turns import update_turns
from scheduler.engine.fair_share.shares import divide_shares
from scheduler.engine.model import PoolQuota

Sums = Sequence[int]


def remaining_pool_quota(pool_quota: PoolQuota, allocated_elsewhere: Sums) -> PoolQuota:
    """Return the pool quota minus the queue's allocations in the group's other pools."""
    return replace(
        pool_quota,
        quota=_subtract(pool_quota.quota, allocated_elsewhere),
        limit=_subtract(pool_quota.limit, allocated_elsewhere),
    )


class QuotaGroups:
    """Queue accounts, across all pools, that share the quota and limit of a quota group."""

    def __init__(self, boards: Mapping[str, Board]) -> None:
        self._boards = boards
        self._accounts: dict[str, list[QueueAccount]] = defaultdict(list)  # by pool
        # For each pool: the number of accepted trials on every other board at the last refresh.
        self._seen: dict[str, tuple[int, ...]] = {}
        # Pools whose amounts have changed since the last call of `changed_pools`.
        self._changed: set[str] = set()
        for group in _build_queue_groups(boards.values()):
            for pool, account in group.accounts.items():
                account.group = group
                self._accounts[pool].append(account)

    def use_full_quotas(self) -> None:
        """Set every account to the group's entire quota and limit, ignoring all allocations."""
        for pool, accounts in self._accounts.items():
            for account in accounts:
                account.change_pool_quota(account.queue.pool_quotas[pool])

    def start_cycle(self) -> None:
        """Set each account's remaining amounts in its quota group. Shares are computed later."""
        for pool in self._accounts:
            self._update_remaining_quotas(pool)
            self._seen[pool] = (0,) * (len(self._boards) - 1)
        self._changed.clear()

    def boards_in_processing_order(self) -> list[Board]:
        """Return the pools' boards in the order in which the engine processes them.

        A group's remaining quota goes to the first board that needs it, so boards are sorted by their first
        pending gang.
        """
        return sorted(
            self._boards.values(), key=lambda board: (self._first_pending_gang(board), board.pool.name)
        )

    def _first_pending_gang(self, board: Board) -> tuple[Any, ...]:
        """Return the smallest sort key of the pending workloads with a queue in a quota group.

        A board without such workloads comes last.
        """
        keys = [
            gang_sort_key(group.gangs[0])
            for group in (board.pending_groups.values() if board.pool.name in self._accounts else ())
            if any(account.group is not None for account in group.account.path)
        ]
        return (0, min(keys)) if keys else (1,)

    def refresh(self, board: Board) -> None:
        """Update the board's remaining amounts and shares if other boards have changed."""
        pool = board.pool.name
        if pool not in self._accounts:
            return
        state = self._accepted_trials_on_other_boards(pool)
        if self._seen[pool] == state:
            return
        self._seen[pool] = state
        if self._update_remaining_quotas(pool):
            self._changed.add(pool)
            board.cycle.reclaimable_cache.clear()
            divide_shares(board.pool, board.ledger, board.nodes.capacity())
            update_turns(board)

    def changed_pools(self) -> set[str]:
        """Refresh all boards. Return the pools whose amounts have changed since the last call."""
        for pool in self._accounts:
            self.refresh(self._boards[pool])
        changed, self._changed = self._changed, set()
        return changed

    def _accepted_trials_on_other_boards(self, pool: str) -> tuple[int, ...]:
        """Return the number of accepted trials on each other board, which shows whether allocations
        have changed.
        """
        return tuple(board.cycle.accepted_trials for name, board in self._boards.items() if name != pool)

    def _update_remaining_quotas(self, pool: str) -> bool:
        changed = False
        for account in self._accounts[pool]:
            group = account.group
            assert group is not None, "only accounts of a group are listed"
            others = [other for other in group.accounts.values() if other is not account]
            full = account.queue.pool_quotas[pool]
            remaining = remaining_pool_quota(full, sum_amounts(other.allocated for other in others))
            guaranteed = _subtract(full.quota, sum_amounts(other.non_preemptible for other in others))
            non_preemptible_quota = finite_bounds(guaranteed)
            if remaining != account.pool_quota or non_preemptible_quota != account.non_preemptible_quota:
                account.change_pool_quota(remaining)
                account.non_preemptible_quota = non_preemptible_quota
                changed = True
        return changed


def _build_queue_groups(boards: Iterable[Board]) -> Iterable[QueueGroup]:
    accounts_by_group: dict[tuple[str, str], dict[str, QueueAccount]] = defaultdict(dict)
    for board in boards:
        for account in board.ledger.accounts.values():
            if account.pool_quota.group:
                accounts_by_group[account.name, account.pool_quota.group][board.pool.name] = account
    return [QueueGroup(group, accounts) for (_, group), accounts in accounts_by_group.items()]


def _subtract(bounds: Bounds, amounts: Sums) -> Bounds:
    gpu, cpu, memory = (
        None if bound is None else max(0, bound - amount)
        for bound, amount in zip(bounds, amounts, strict=True)
    )
    return Bounds(gpu, cpu, memory)


def sum_amounts(rows: Iterable[Sums]) -> list[int]:
    total = [0, 0, 0]
    for row in rows:
        total = [one + other for one, other in zip(total, row, strict=True)]
    return total
