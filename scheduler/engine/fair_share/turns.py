"""Take turns where shares cannot be divided as workloads request them.

A queue can be reclaimed from only when its relative usage is clearly above that of the preemptor's queue: the
usage while the other queue waited must outweigh the cost of the change. Conversely, a workload that cannot be
divided and therefore runs beyond its queue's share keeps its turn until then.

The required difference depends on the size of the change. Swapping the whole pool shifts usage fast and must
not happen too often. A small change shifts usage slowly and must still happen at some point. So the required
difference is at most a third of the gap towards which usage is heading, both before and after the change.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from scheduler.engine.board.board import Board
from scheduler.engine.board.eligible import first_pending
from scheduler.engine.board.gang import Gang
from scheduler.engine.board.ledger import QueueAccount, first
from scheduler.engine.board.order import in_project
from scheduler.engine.fair_share.usage_history import FLOOR, part, wanting, weights_of

HYSTERESIS = 0.4  # upper bound in relative usage: two equal queues swap about three times per half-life
LEAST = 0.02  # smaller differences in relative usage are ignored


@dataclass(frozen=True, slots=True)
class Level:
    """Allocations of sibling queues that count as usage of one resource, with their relative worth."""

    charged: Mapping[QueueAccount, int]
    worth: Mapping[QueueAccount, float]  # relative usage per allocated unit

    def held(self, account: QueueAccount) -> float:
        """Return the relative usage towards which the queue is heading with its current allocation."""
        return self.charged[account] * self.worth[account] if self.charged[account] else 0.0


class TurnTaking:
    """Turns between the preemptor's queues and others, for its main resource (GPUs if it requests any)."""

    def __init__(self, board: Board, gang: Gang, requested: tuple[int, int, int]) -> None:
        self._board, self._gang, self.kind = board, gang, first(requested)
        self._requested = requested[self.kind]
        self.counts = bool(gang.account.past)
        # Computed before any victim is selected.
        self._levels = {a: _level(board, a, self.kind) for a in gang.account.path} if self.counts else {}
        self._beyond = {a: self._beyond_quota(a, a, self._requested) for a in self._levels}
        self._lifted = {a for a in gang.account.path if a.may_exceed_share_once(requested)}
        self.on = self.counts and gang.account in self._lifted and is_project_head(board, gang)

    def may_owe(self, own_queue: QueueAccount, victim_queue: QueueAccount) -> bool:
        """Return whether the victim queue used more and no queue of the preemptor exceeds its share yet.

        Pending gangs are tried in order of relative usage, so the gangs before this one could not be placed.
        """
        if not self.on or self._ahead(own_queue, victim_queue) <= 0:
            return False
        path = self._gang.account.path
        return all(account in self._lifted for account in path[: path.index(own_queue) + 1])

    def owes(self, own_queue: QueueAccount, victim_queue: QueueAccount, amount: int) -> bool:
        """Return whether the victim queue has had its turn, so that it can lose this amount."""
        return self._has_had_its_turn(own_queue, victim_queue, max(amount, self._requested))

    def may_give(self, own_queue: QueueAccount, victim_queue: QueueAccount, amount: int) -> bool:
        """Return whether the victim queue, which is above its share, may lose this amount.

        A victim queue that ends up less far beyond its quota than the other queue must have had its turn.
        Any other victim queue must keep its share, or have used at least as much as the preemptor's queue.
        """
        if self._beyond_quota(victim_queue, own_queue, -amount) < self._beyond[own_queue]:
            return self.owes(own_queue, victim_queue, amount)
        due = max(victim_queue.quota[self.kind], victim_queue.share[self.kind] + victim_queue.cut[self.kind])
        return victim_queue.allocated[self.kind] - amount >= due or self._ahead(own_queue, victim_queue) >= 0

    def _beyond_quota(self, account: QueueAccount, own_queue: QueueAccount, more: int) -> float:
        beyond = account.allocated[self.kind] + more - account.quota[self.kind]
        return beyond * self._levels[own_queue].worth[account] if beyond > 0 else 0.0

    def _has_had_its_turn(self, own_queue: QueueAccount, victim_queue: QueueAccount, exchanged: int) -> bool:
        """Return whether relative usage differs enough to justify exchanging this amount."""
        (used, mean, at_reset), less = victim_queue.past[self.kind], own_queue.past[self.kind].used
        if used >= at_reset > less:
            return True  # later in the window there would be no time left for the preemptor's queue
        if used - less <= LEAST:
            return False
        far = self._hysteresis(own_queue, victim_queue, exchanged) / 2
        return used - mean > far or mean - less > far

    def _ahead(self, own_queue: QueueAccount, victim_queue: QueueAccount) -> float:
        return victim_queue.past[self.kind].used - own_queue.past[self.kind].used

    def _hysteresis(self, own_queue: QueueAccount, victim_queue: QueueAccount, exchanged: int) -> float:
        level = self._levels[own_queue]
        now = level.held(victim_queue) - level.held(own_queue)
        amount = min(exchanged, level.charged[victim_queue])
        then = (
            now - (amount * level.worth[victim_queue] if amount else 0.0) - exchanged * level.worth[own_queue]
        )
        if now <= 0 or then >= 0:
            return LEAST
        return max(LEAST, min(HYSTERESIS * self._pace(own_queue), now / 3, -then / 3))

    def _pace(self, account: QueueAccount) -> float:
        """Return a factor that halves for each higher level with turns, so that projects share a turn."""
        above = (wanting(_siblings(self._board, step), self.kind) for step in account.path[1:])
        return math.prod(0.5 for asking in above if len(asking) > 1)


def _siblings(board: Board, account: QueueAccount) -> Sequence[QueueAccount]:
    return account.parent.children if account.parent else board.ledger.roots


def _level(board: Board, account: QueueAccount, kind: int) -> Level:
    """Return the level of an account and its siblings, cached until an allocation changes."""
    key = "level", kind
    if key not in account.sibling_cache:
        accounts = _siblings(board, account)
        asking = wanting(accounts, kind)
        whole = account.parent.share[kind] if account.parent else board.nodes.capacity()[kind]
        charged = {a: _charged(board, a, kind) for a in accounts}
        now, weights = max(FLOOR * whole, sum(charged[a] for a in asking)), weights_of(asking, kind)
        account.sibling_cache[key] = Level(charged, {a: part(1, now, a, kind, weights) for a in accounts})
    level: Level = account.sibling_cache[key]
    return level


def _charged(board: Board, account: QueueAccount, kind: int) -> int:
    held = account.allocated[kind]
    return held if board.pool.fair_share.count_all else max(0, held - account.quota[kind])


def is_project_head(board: Board, gang: Gang) -> bool:
    """Return whether the gang is the next pending gang of its project."""
    heads = (
        first_pending(board, group)
        for group in board.groups_by_project.get(gang.account, ())
        if group.choice == gang.choice
    )
    return all(head is None or head is gang or in_project(gang) < in_project(head) for head in heads)
