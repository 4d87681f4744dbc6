"""Let queues take turns if their workloads are too large for their shares.

A queue's turn lasts as long as the queue runs a workload that exceeds the queue's share. The queue's
resources can be reclaimed once its relative usage clearly exceeds that of the preemptor's queue. The required
difference grows with the size of the change: reallocating the whole pool must not happen too often.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from scheduler.engine.board.board import Board
from scheduler.engine.board.eligible import first_pending_gang
from scheduler.engine.board.gang import Gang
from scheduler.engine.board.ledger import QueueAccount, main_resource
from scheduler.engine.board.order import gang_sort_key
from scheduler.engine.fair_share.usage_history import (
    MIN_USAGE_FRACTION,
    accounts_with_requests,
    sum_weights,
    usage_relative_to_share,
)

# Maximum difference that a turn requires. Two equal queues alternate about three times per half-life.
HYSTERESIS = 0.4
MIN_DIFFERENCE = 0.02  # smaller differences in relative usage are ignored


@dataclass(frozen=True, slots=True)
class SiblingLevel:
    """Usage of sibling queues: the allocations that add to it, and the relative usage per allocated unit."""

    charged: Mapping[QueueAccount, int]
    usage_per_unit: Mapping[QueueAccount, float]

    def projected_usage(self, account: QueueAccount) -> float:
        """Return the relative usage that the queue approaches if its allocation does not change."""
        return self.charged[account] * self.usage_per_unit[account] if self.charged[account] else 0.0


class TurnTaking:
    """Rules that decide whether the preemptor's queue or a victim's queue has the next turn.

    Only usage of the preemptor's main resource is compared.
    """

    def __init__(self, board: Board, gang: Gang, requested: tuple[int, int, int]) -> None:
        self._board, self._gang, self.kind = board, gang, main_resource(requested)
        self._requested = requested[self.kind]
        self.history_counts = bool(gang.account.relative_usage)
        # Levels are computed before any victim is selected.
        self._levels = (
            {a: _sibling_level(board, a, self.kind) for a in gang.account.path} if self.history_counts else {}
        )
        self._own_excess = {a: self._relative_excess(a, a, self._requested) for a in self._levels}
        self._may_exceed_share = {a for a in gang.account.path if a.may_exceed_share_once(requested)}
        self.is_active = (
            self.history_counts and gang.account in self._may_exceed_share and is_project_head(board, gang)
        )

    def turn_taking_queues(
        self, own_queue: QueueAccount, victim_queue: QueueAccount, project: QueueAccount
    ) -> tuple[QueueAccount, QueueAccount]:
        """Return the queue of the preemptor and the queue of the victim that take turns.

        `own_queue` and `victim_queue` are the siblings at which their paths diverge.
        """
        if own_queue.parent is not None:
            return own_queue, victim_queue
        return self._gang.account.turn_taking_queue(self.kind), project.turn_taking_queue(self.kind)

    def may_yield_turn(self, own_queue: QueueAccount, victim_queue: QueueAccount) -> bool:
        """Return whether the victim queue has used more than the preemptor's queue, which may therefore
        exceed its share.
        """
        if not self.is_active or self._usage_difference(own_queue, victim_queue) <= 0:
            return False
        path = self._gang.account.path
        return all(account in self._may_exceed_share for account in path[: path.index(own_queue) + 1])

    def must_yield_turn(self, own_queue: QueueAccount, victim_queue: QueueAccount, amount: int) -> bool:
        """Return whether the victim queue's turn is over: its usage is far enough above the preemptor's."""
        return self._usage_gap_justifies_transfer(own_queue, victim_queue, max(amount, self._requested))

    def may_be_reclaimed(self, own_queue: QueueAccount, victim_queue: QueueAccount, amount: int) -> bool:
        """Return whether the amount may be reclaimed from the victim queue, which must be above its share."""
        if self._relative_excess(victim_queue, own_queue, -amount) < self._own_excess[own_queue]:
            return self.must_yield_turn(own_queue, victim_queue, amount)
        deserved = max(
            victim_queue.quota[self.kind], victim_queue.share[self.kind] + victim_queue.rounded_off[self.kind]
        )
        return (
            victim_queue.allocated[self.kind] - amount >= deserved
            or self._usage_difference(own_queue, victim_queue) >= 0
        )

    def _relative_excess(self, account: QueueAccount, own_queue: QueueAccount, more: int) -> float:
        queues = account.path if account.parent and account.parent.divided[self.kind] else (account,)
        excess = more + min(queue.allocated[self.kind] - queue.quota[self.kind] for queue in queues)
        return excess * self._levels[own_queue].usage_per_unit[account] if excess > 0 else 0.0

    def _usage_gap_justifies_transfer(
        self, own_queue: QueueAccount, victim_queue: QueueAccount, exchanged: int
    ) -> bool:
        (used, mean, at_reset), less = (
            victim_queue.relative_usage[self.kind],
            own_queue.relative_usage[self.kind].used,
        )
        if used >= at_reset > less:
            # Transfer now, because too little of the window would be left for the preemptor's queue later.
            return True
        if used - less <= MIN_DIFFERENCE:
            return False
        margin = self._hysteresis(own_queue, victim_queue, exchanged) / 2
        return used - mean > margin or mean - less > margin

    def _usage_difference(self, own_queue: QueueAccount, victim_queue: QueueAccount) -> float:
        return victim_queue.relative_usage[self.kind].used - own_queue.relative_usage[self.kind].used

    def _hysteresis(self, own_queue: QueueAccount, victim_queue: QueueAccount, exchanged: int) -> float:
        level = self._levels[own_queue]
        now = level.projected_usage(victim_queue) - level.projected_usage(own_queue)
        amount = min(exchanged, level.charged[victim_queue])
        then = (
            now
            - (amount * level.usage_per_unit[victim_queue] if amount else 0.0)
            - exchanged * level.usage_per_unit[own_queue]
        )
        if now <= 0 or then >= 0:
            return MIN_DIFFERENCE
        # At most a third of the projected usage difference, both with and without the transfer.
        return max(MIN_DIFFERENCE, min(HYSTERESIS * self._usage_gap_factor(own_queue), now / 3, -then / 3))

    def _usage_gap_factor(self, account: QueueAccount) -> float:
        """Return a factor that is halved for each parent level whose queues also take turns."""
        if account.path[-1].divided[self.kind]:
            return 1.0
        above = (
            accounts_with_requests(_sibling_accounts(self._board, step), self.kind)
            for step in account.path[1:]
        )
        return math.prod(0.5 for requesting in above if len(requesting) > 1)


def _sibling_accounts(board: Board, account: QueueAccount) -> Sequence[QueueAccount]:
    return account.parent.children if account.parent else board.ledger.roots


def _sibling_level(board: Board, account: QueueAccount, kind: int) -> SiblingLevel:
    """Return the usage of a queue and its siblings, cached until an allocation changes."""
    if account.parent and account.parent.divided[kind]:
        account = account.parent
    key = "level", kind
    if key not in account.sibling_cache:
        accounts = _sibling_accounts(board, account)
        requesting = accounts_with_requests(accounts, kind)
        total = account.parent.share[kind] if account.parent else board.nodes.capacity()[kind]
        charged = {a: _charged_amount(board, a, kind) for a in accounts}
        now, weights = (
            max(MIN_USAGE_FRACTION * total, sum(charged[a] for a in requesting)),
            sum_weights(requesting, kind),
        )
        usage_per_unit = {a: usage_relative_to_share(1, now, a, kind, weights) for a in accounts}
        for department in accounts:
            if department.divided[kind]:
                _add_projects(board, department, kind, charged, usage_per_unit)
        account.sibling_cache[key] = SiblingLevel(charged, usage_per_unit)
    level: SiblingLevel = account.sibling_cache[key]
    return level


def _add_projects(
    board: Board,
    department: QueueAccount,
    kind: int,
    charged: dict[QueueAccount, int],
    usage_per_unit: dict[QueueAccount, float],
) -> None:
    """Add a department's projects to `charged` and `usage_per_unit`.

    The department's weight is divided among them.
    """
    projects = department.children
    weights = sum_weights(accounts_with_requests(projects, kind), kind)
    for project in projects:
        charged[project] = min(charged[department], _charged_amount(board, project, kind))
        usage_per_unit[project] = usage_relative_to_share(
            usage_per_unit[department], 1, project, kind, weights
        )


def _charged_amount(board: Board, account: QueueAccount, kind: int) -> int:
    allocated = account.allocated[kind]
    return allocated if board.pool.fair_share.count_all else max(0, allocated - account.quota[kind])


def is_project_head(board: Board, gang: Gang) -> bool:
    """Return whether the gang is its project's first pending gang."""
    heads = (
        first_pending_gang(board, group)
        for group in board.groups_by_project.get(gang.account, ())
        if group.choice == gang.choice
    )
    return all(head is None or head is gang or gang_sort_key(gang) < gang_sort_key(head) for head in heads)
