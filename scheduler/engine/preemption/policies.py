"""Preemption policies: which workloads may be evicted for which others, and down to which bound.

A policy object serves one preemptor. The policy reads the current board, without the victims selected so far.
"""

import math
from collections.abc import Hashable, Iterator, Sequence

from scheduler.engine.board.board import Board
from scheduler.engine.board.eligible import has_elastic, lowest_priority, over_share
from scheduler.engine.board.gang import Gang
from scheduler.engine.board.ledger import NO_BOUND, QueueAccount, beyond_quota, within
from scheduler.engine.fair_share.turns import TurnTaking
from scheduler.engine.fair_share.usage_history import memory_of
from scheduler.engine.plan import Kind, Reason
from scheduler.engine.preemption.policy import Key, PreemptionPolicy
from scheduler.engine.preemption.victims import Victim


def _are_alike(victims: Sequence[Victim]) -> bool:
    """Return whether all victims are of one queue and of one size."""
    account, amounts = victims[0].gang.account, victims[0].amounts
    return all(victim.gang.account is account and victim.amounts == amounts for victim in victims)


def _less(held: Sequence[int], amounts: Sequence[int], count: int) -> list[int]:
    return [have - count * amount for have, amount in zip(held, amounts, strict=True)]


def _projects(account: QueueAccount) -> Iterator[QueueAccount]:
    if not account.children:
        yield account
    for child in account.children:
        yield from _projects(child)


class Reclaim(PreemptionPolicy):
    """Reclaim across queues, compared where their paths diverge and in the requested resources only."""

    kind = Kind.RECLAIM
    relieves = frozenset({Reason.DEPARTMENT_LIMIT})

    @classmethod
    def needs_share(cls, board: Board) -> bool:
        return not memory_of(board.pool.fair_share)  # with history, the gang may be due a turn

    def __init__(self, board: Board, gang: Gang, requested: tuple[int, int, int]) -> None:
        super().__init__(board, gang, requested)
        self.deserved = over_share(gang, requested) is None
        self.turns = TurnTaking(board, gang, requested)
        self._ahead: dict[Hashable, tuple[int, Key | None]] = {}  # valid while the side's version is the same
        self._overdone = self._careful = False  # whether the department exceeded its due, or must not

    def may_take_from_queue(self, account: QueueAccount) -> bool:
        sides = self.diverging_queues(account)
        return sides is not None and any(True for _ in self._above(*sides))

    def projects(self) -> Iterator[QueueAccount]:
        """Yield projects below queues that are over their quota."""
        kinds, held = tuple(self.kinds), self.board.by_project
        for own_queue in self.gang.account.path:
            level = own_queue.parent.children if own_queue.parent else self.board.ledger.roots
            for victim_queue in beyond_quota(own_queue, level, kinds):
                if victim_queue is not own_queue and any(True for _ in self._above(own_queue, victim_queue)):
                    yield from (account for account in _projects(victim_queue) if account in held)

    def threshold(self, side: QueueAccount, kind: int) -> int | None:
        sides = self.diverging_queues(next(iter(_projects(side))))
        above = list(self._above(*sides)) if sides else []
        return above[0][1] if len(above) == 1 and above[0][0] == kind else None

    def rule(self, victim: Victim) -> str | None:
        sides = self.diverging_queues(victim.gang.account)
        if sides is None:
            return None
        own_queue, victim_queue = sides
        for kind, threshold, why in self._above(own_queue, victim_queue):
            # Growth of the gang is evicted before its core; the core is the last victim.
            held = victim_queue.allocated[kind]
            if victim.amounts[kind] > 0 and held - victim.growth[kind] > threshold:
                if why == "above_share" and (self.stays_in_quota[own_queue] or not self.turns.counts):
                    return why
                return why if self._is_its_turn(own_queue, victim_queue, kind, why, victim) else None
        return None

    def _is_its_turn(
        self, own_queue: QueueAccount, victim_queue: QueueAccount, kind: int, why: str, victim: Victim
    ) -> bool:
        """Return whether past usage allows the eviction, where history counts. Quota needs no turn."""
        amount = victim.amounts[self.turns.kind]
        if why == "above_share" and kind == self.turns.kind:
            return self.turns.may_give(own_queue, victim_queue, amount)
        divides = (
            why == "above_share"
            and victim_queue.allocated[kind] - victim.amounts[kind] < victim_queue.deserved[kind]
        )
        return self.turns.owes(own_queue, victim_queue, amount) if divides or why == "turn" else True

    def _above(self, own_queue: QueueAccount, victim_queue: QueueAccount) -> Iterator[tuple[int, int, str]]:
        """Yield the resources that can be reclaimed from the victim queue, with threshold and rule."""
        if not self.deserved:
            if self.turns.may_owe(own_queue, victim_queue):
                for kind in self.kinds:
                    if victim_queue.allocated[kind] > victim_queue.quota[kind]:
                        yield kind, victim_queue.quota[kind], "turn"
            return
        for kind in self.kinds:
            held = victim_queue.allocated[kind]
            if held > victim_queue.deserved[kind]:
                yield kind, victim_queue.deserved[kind], "above_share"
            elif held > victim_queue.quota[kind] and self.stays_in_quota[own_queue]:
                yield kind, victim_queue.quota[kind], "within_quota"

    def holds(self, sides: set[tuple[QueueAccount, QueueAccount]]) -> bool:
        for own_queue, victim_queue in sides if self.deserved else ():
            ratio = own_queue.saturation(self.requested, plus=False)
            if ratio > 1 and ratio >= victim_queue.saturation(self.requested, plus=False):
                self._overdone = True
                return False
        return True

    def takes_more_inside(self) -> bool:
        changed = self._overdone and not self._careful
        self._careful = self._careful or changed
        return changed

    def ceiling(self, account: QueueAccount) -> Sequence[int]:
        if self._careful:
            return [min(limit, due) for limit, due in zip(account.limit, account.deserved, strict=True)]
        return super().ceiling(account)

    def ahead(self, victim: Victim) -> Key | None:
        gang = victim.gang
        alike = gang.account, gang.workload.priority, victim.whole, victim.amounts, victim.growth
        sides = self.diverging_queues(gang.account)
        version = (sides[1] if sides else gang.account).version
        cached = self._ahead.get(alike)
        if cached is None or cached[0] != version:
            cached = self._ahead[alike] = version, super().ahead(victim)
        return cached[1]

    def queue_key(self, account: QueueAccount) -> Key:
        sides = self.diverging_queues(account)
        victim_queue = sides[1] if sides else account
        return (*self._turn(victim_queue), *(self._turn(account) if victim_queue is not account else ()))

    def _turn(self, account: QueueAccount) -> Key:
        """Return the sort key of a queue: furthest beyond its share, lowest rank, most saturated, newest."""
        key = ("turn", self.requested)
        result: Key | None = account.cache.get(key)
        if result is None:
            saturation = account.saturation(self.requested, plus=False)
            result = self._beyond(account), account.rank, -saturation, -account.created, account.name
            account.cache[key] = result
        return result

    def standing(self, victims: Sequence[Victim]) -> Key:
        """Return the worst stage of the victims' queues: over fair share, over quota, then below quota.

        Each victim is judged by its queue's allocation after the victims before it.
        """
        if len(victims) == 1 or _are_alike(victims):
            return self._standing_of(victims[0], len(victims))
        remaining: dict[QueueAccount, list[int]] = {}
        worst = (False, 0, -math.inf, 0)
        for victim in victims:
            account = victim.gang.account
            sides = self.diverging_queues(account)
            victim_queue = sides[1] if sides else account
            stages = []
            for queue in (victim_queue, account) if account is not victim_queue else (victim_queue,):
                left = remaining.setdefault(queue, list(queue.allocated))
                stages.append(self._stage(queue, left))
                for kind in self.kinds:
                    left[kind] -= victim.amounts[kind]
            left = remaining[victim_queue]
            dips = all(left[kind] < victim_queue.quota[kind] for kind in self.kinds if victim.amounts[kind])
            worst = max(worst, (dips, stages[0], self._past(victim_queue), stages[-1]))
        return worst

    def _standing_of(self, victim: Victim, count: int) -> Key:
        """Return the standing of `count` victims that equal this one."""
        account = victim.gang.account
        sides = self.diverging_queues(account)
        victim_queue = sides[1] if sides else account
        dips, held, quota, amounts = True, victim_queue.allocated, victim_queue.quota, victim.amounts
        for kind in self.kinds:
            if amounts[kind] and held[kind] - amounts[kind] * count >= quota[kind]:
                dips = False
        if count == 1:
            return dips, self._beyond(victim_queue), self._past(victim_queue), self._beyond(account)
        stage = inside = self._stage(victim_queue, _less(held, amounts, count - 1))
        if account is not victim_queue:
            inside = self._stage(account, _less(account.allocated, amounts, count - 1))
        return dips, stage, self._past(victim_queue), inside

    def _past(self, victim_queue: QueueAccount) -> float:
        """Return the negative relative usage, rounded so that costs decide between similar queues."""
        return -round(victim_queue.past[self.turns.kind].used, 1) if victim_queue.past else 0.0

    def _beyond(self, account: QueueAccount) -> int:
        key = ("beyond", tuple(self.kinds))
        result: int | None = account.cache.get(key)
        if result is None:
            result = self._stage(account, account.allocated)
            account.cache[key] = result
        return result

    def _stage(self, account: QueueAccount, held: Sequence[int]) -> int:
        """Return the stage of a queue with this allocation: 0 over share, 1 over quota, 2 within quota."""
        if any(held[kind] > account.deserved[kind] for kind in self.kinds):
            return 0
        return 1 if any(held[kind] > account.quota[kind] for kind in self.kinds) else 2

    def may_evict(self) -> bool:
        """Return whether the preemptor is within quota or fair share, or due a turn."""
        return self.deserved or (self.turns.on and any(map(self.may_take_from_queue, self.board.by_project)))


class Preempt(PreemptionPolicy):
    """Preempt strictly lower priorities inside a project."""

    kind = Kind.PREEMPT
    relieves = frozenset({Reason.PROJECT_LIMIT, Reason.DEPARTMENT_LIMIT})

    @classmethod
    def finds_nothing_beyond_share(cls, board: Board, gang: Gang) -> bool:
        lowest = lowest_priority(board, gang.account)
        return lowest is None or lowest >= gang.workload.priority

    def may_take_from_queue(self, account: QueueAccount) -> bool:
        return account is self.gang.account

    def projects(self) -> Iterator[QueueAccount]:
        return (account for account in (self.gang.account,) if account in self.board.by_project)

    def would_take_from(self, gang: Gang) -> bool:
        return super().would_take_from(gang) and gang.workload.priority < self.gang.workload.priority

    def rule(self, victim: Victim) -> str | None:
        same = victim.gang.account is self.gang.account
        return "priority" if same and self.may_take_from(victim.gang) else None

    def _min_runtime(self, account: QueueAccount) -> int:
        result = (step.queue.preempt_min_runtime for step in account.path)
        return next((s for s in result if s is not None), self.board.pool.preempt_min_runtime)


class Shrink(Reclaim):
    """Evict growth only: across queues as in reclaim, inside the project up to the same priority."""

    kind = Kind.SHRINK
    takes_gangs = False
    relieves = frozenset({Reason.PROJECT_LIMIT, Reason.DEPARTMENT_LIMIT})

    @classmethod
    def needs_share(cls, board: Board) -> bool:
        del board
        return False  # a project may exchange its own growth

    @classmethod
    def finds_nothing_beyond_share(cls, board: Board, gang: Gang) -> bool:
        return not has_elastic(board, gang.account)

    def __init__(self, board: Board, gang: Gang, requested: tuple[int, int, int]) -> None:
        super().__init__(board, gang, requested)
        # A project beyond its share may exchange its own growth for a minimum, but must not hold more.
        project = gang.account
        held = [max(due, now) for due, now in zip(project.deserved, project.allocated, strict=True)]
        self.most = [min(limit, most) for limit, most in zip(project.limit, held, strict=True)]

    def ceiling(self, account: QueueAccount) -> Sequence[int]:
        if account is self.gang.account and not self.deserved:
            return self.most
        return super().ceiling(account)

    def may_evict(self) -> bool:
        return True

    def may_take_from_queue(self, account: QueueAccount) -> bool:
        return account is self.gang.account or (self.deserved and super().may_take_from_queue(account))

    def projects(self) -> Iterator[QueueAccount]:
        if self.gang.account in self.board.by_project:
            yield self.gang.account
        if self.deserved:
            yield from super().projects()

    def rule(self, victim: Victim) -> str | None:
        if victim.gang.account is self.gang.account:
            return "fulfilment" if victim.gang.workload.priority <= self.gang.workload.priority else None
        return super().rule(victim)

    def inside_key(self, victim: Victim) -> Key:
        return (victim.is_group, -victim.fulfilment, *super().inside_key(victim))


class ShrinkForGrowth(Reclaim):
    """Evict growth beyond one fair share for growth within another."""

    kind = Kind.GROW
    takes_gangs = False

    def inside_key(self, victim: Victim) -> Key:
        return (victim.is_group, -victim.fulfilment, *super().inside_key(victim))


class Consolidate(PreemptionPolicy):
    """Move preemptible pods without evicting any."""

    kind = Kind.CONSOLIDATE

    @classmethod
    def needs_share(cls, board: Board) -> bool:
        del board
        return True

    takes_growth = False
    moves_only = True
    unreported = frozenset({Reason.NO_RECLAIMABLE_RESOURCES})

    def __init__(self, board: Board, gang: Gang, requested: tuple[int, int, int]) -> None:
        super().__init__(board, gang, requested)
        # Checked at every level, so that no pod is moved for capacity that a sibling may reclaim at once.
        self.deserved = all(within(a.allocated, a.deserved, requested) for a in gang.account.path)
        settings = board.pool.consolidation
        self.most_moves = settings.max_moves
        self.most_trials = NO_BOUND if settings.max_trials is None else settings.max_trials

    def may_take_from_queue(self, account: QueueAccount) -> bool:
        del account
        return True

    def rule(self, victim: Victim) -> str | None:
        del victim
        return "consolidate"

    def may_evict(self) -> bool:
        return self.deserved

    def _min_runtime(self, account: QueueAccount) -> int:
        """Return the longer of the two minimum runtimes, because a move interrupts the workload as well."""
        result = (step.queue.preempt_min_runtime for step in account.path)
        inside = next((s for s in result if s is not None), self.board.pool.preempt_min_runtime)
        return max(inside, super()._min_runtime(account))

    def inside_key(self, victim: Victim) -> Key:
        return (victim.lost_gpu_seconds, victim.amounts[0], *super().inside_key(victim))

    def cost(self, victims: Sequence[Victim]) -> Key:
        """Return the cost of moves: lost GPU-seconds, then the number of moves, then moved GPUs."""
        freed = sum(victim.amounts[0] for victim in victims)
        return (sum(victim.lost_gpu_seconds for victim in victims), len(victims), freed)
