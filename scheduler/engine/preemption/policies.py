"""The preemption policies: which workloads may be evicted for which, and how far.

A law is made for one newcomer. It looks at the board as it stands, with what has been taken so far off it.
"""

import math
from collections.abc import Hashable, Iterator, Sequence

from scheduler.engine.board.board import Board
from scheduler.engine.board.eligible import has_elastic, lowest_priority, over_share
from scheduler.engine.board.gang import Gang
from scheduler.engine.board.ledger import NO_BOUND, Account, beyond_quota, within
from scheduler.engine.fair_share.turns import Turns
from scheduler.engine.fair_share.usage_history import memory_of
from scheduler.engine.plan import Kind, Reason
from scheduler.engine.preemption.policy import Key, Law
from scheduler.engine.preemption.victims import Lump


def _are_alike(lumps: Sequence[Lump]) -> bool:
    """Of one queue, and of one size."""
    account, amounts = lumps[0].gang.account, lumps[0].amounts
    return all(lump.gang.account is account and lump.amounts == amounts for lump in lumps)


def _less(held: Sequence[int], amounts: Sequence[int], count: int) -> list[int]:
    return [have - count * amount for have, amount in zip(held, amounts, strict=True)]


def _projects(account: Account) -> Iterator[Account]:
    if not account.children:
        yield account
    for child in account.children:
        yield from _projects(child)


class Reclaim(Law):
    """Across queues, compared where the paths part, only in the resources the newcomer asks for."""

    kind = Kind.RECLAIM
    relieves = frozenset({Reason.DEPARTMENT_LIMIT})

    @classmethod
    def needs_share(cls, board: Board) -> bool:
        return not memory_of(board.pool.fair_share)  # else it may be owed a turn

    def __init__(self, board: Board, gang: Gang, asked: tuple[int, int, int]) -> None:
        super().__init__(board, gang, asked)
        self.entitled = over_share(gang, asked) is None
        self.turns = Turns(board, gang, asked)
        self._ahead: dict[Hashable, tuple[int, Key | None]] = {}  # as long as the side holds what it held
        self._overdone = self._careful = False  # whether it ended, and may not end, beyond its due

    def may_look_at(self, account: Account) -> bool:
        sides = self.parting(account)
        return sides is not None and any(True for _ in self._above(*sides))

    def projects(self) -> Iterator[Account]:
        """Only below those who hold more than their quota: nobody else is above anything."""
        kinds, held = tuple(self.kinds), self.board.by_project
        for mine in self.gang.account.path:
            level = mine.parent.children if mine.parent else self.board.ledger.roots
            for theirs in beyond_quota(mine, level, kinds):
                if theirs is not mine and any(True for _ in self._above(mine, theirs)):
                    yield from (account for account in _projects(theirs) if account in held)

    def threshold(self, side: Account, kind: int) -> int | None:
        sides = self.parting(next(iter(_projects(side))))
        above = list(self._above(*sides)) if sides else []
        return above[0][1] if len(above) == 1 and above[0][0] == kind else None

    def rule(self, lump: Lump) -> str | None:
        sides = self.parting(lump.gang.account)
        if sides is None:
            return None
        mine, theirs = sides
        for kind, threshold, why in self._above(mine, theirs):
            # What is growth of this gang goes before its core; the core is the last lump.
            held = theirs.allocated[kind]
            if lump.amounts[kind] > 0 and held - lump.growth[kind] > threshold:
                if why == "above_share" and (self.stays_in_quota[mine] or not self.turns.counts):
                    return why
                return why if self._is_its_turn(mine, theirs, kind, why, lump) else None
        return None

    def _is_its_turn(self, mine: Account, theirs: Account, kind: int, why: str, lump: Lump) -> bool:
        """Whether the past allows it, too, where history counts. Quota needs no turn."""
        given = lump.amounts[self.turns.kind]
        if why == "above_share" and kind == self.turns.kind:
            return self.turns.may_give(mine, theirs, given)
        divides = why == "above_share" and theirs.allocated[kind] - lump.amounts[kind] < theirs.entitled[kind]
        return self.turns.owes(mine, theirs, given) if divides or why == "turn" else True

    def _above(self, mine: Account, theirs: Account) -> Iterator[tuple[int, int, str]]:
        """The resources in which their side has more than it may keep, with the least it may keep."""
        if not self.entitled:
            if self.turns.may_owe(mine, theirs):
                for kind in self.kinds:
                    if theirs.allocated[kind] > theirs.quota[kind]:
                        yield kind, theirs.quota[kind], "turn"
            return
        for kind in self.kinds:
            held = theirs.allocated[kind]
            if held > theirs.entitled[kind]:
                yield kind, theirs.entitled[kind], "above_share"
            elif held > theirs.quota[kind] and self.stays_in_quota[mine]:
                yield kind, theirs.quota[kind], "within_quota"

    def holds(self, sides: set[tuple[Account, Account]]) -> bool:
        for mine, theirs in sides if self.entitled else ():
            ratio = mine.saturation(self.asked, plus=False)
            if ratio > 1 and ratio >= theirs.saturation(self.asked, plus=False):
                self._overdone = True
                return False
        return True

    def takes_more_inside(self) -> bool:
        changes = self._overdone and not self._careful
        self._careful = self._careful or changes
        return changes

    def ceiling(self, account: Account) -> Sequence[int]:
        if self._careful:
            return [min(cap, due) for cap, due in zip(account.cap, account.entitled, strict=True)]
        return super().ceiling(account)

    def ahead(self, lump: Lump) -> Key | None:
        gang = lump.gang
        alike = gang.account, gang.workload.priority, lump.whole, lump.amounts, lump.growth
        sides = self.parting(gang.account)
        version = (sides[1] if sides else gang.account).version
        known = self._ahead.get(alike)
        if known is None or known[0] != version:
            known = self._ahead[alike] = version, super().ahead(lump)
        return known[1]

    def queue_key(self, account: Account) -> Key:
        sides = self.parting(account)
        theirs = sides[1] if sides else account
        return (*self._turn(theirs), *(self._turn(account) if theirs is not account else ()))

    def _turn(self, account: Account) -> Key:
        """The furthest beyond its due, the lowest rank, the most saturated, the newest."""
        key = ("turn", self.asked)
        found: Key | None = account.recalled.get(key)
        if found is None:
            saturation = account.saturation(self.asked, plus=False)
            found = self._beyond(account), account.rank, -saturation, -account.created, account.name
            account.recalled[key] = found
        return found

    def standing(self, lumps: Sequence[Lump]) -> Key:
        """What takes a queue below its quota goes last; before, who is over fair share, then over quota.

        Of several, each counts as its queue then stands: with those before it gone.
        """
        if len(lumps) == 1 or _are_alike(lumps):
            return self._standing_of(lumps[0], len(lumps))
        taken: dict[Account, list[int]] = {}
        worst = (False, 0, -math.inf, 0)
        for lump in lumps:
            account = lump.gang.account
            sides = self.parting(account)
            theirs = sides[1] if sides else account
            stages = []
            for payer in (theirs, account) if account is not theirs else (theirs,):
                left = taken.setdefault(payer, list(payer.allocated))
                stages.append(self._stage(payer, left))
                for kind in self.kinds:
                    left[kind] -= lump.amounts[kind]
            left = taken[theirs]
            dips = all(left[kind] < theirs.quota[kind] for kind in self.kinds if lump.amounts[kind])
            worst = max(worst, (dips, stages[0], self._past(theirs), stages[-1]))
        return worst

    def _standing_of(self, lump: Lump, count: int) -> Key:
        """Of so many like this one."""
        account = lump.gang.account
        sides = self.parting(account)
        theirs = sides[1] if sides else account
        dips, held, quota, amounts = True, theirs.allocated, theirs.quota, lump.amounts
        for kind in self.kinds:
            if amounts[kind] and held[kind] - amounts[kind] * count >= quota[kind]:
                dips = False
        if count == 1:
            return dips, self._beyond(theirs), self._past(theirs), self._beyond(account)
        stage = inside = self._stage(theirs, _less(held, amounts, count - 1))
        if account is not theirs:
            inside = self._stage(account, _less(account.allocated, amounts, count - 1))
        return dips, stage, self._past(theirs), inside

    def _past(self, theirs: Account) -> float:
        """Who used more pays first, where history counts; what is near is alike, and the cost decides."""
        return -round(theirs.past[self.turns.kind].used, 1) if theirs.past else 0.0

    def _beyond(self, account: Account) -> int:
        key = ("beyond", tuple(self.kinds))
        found: int | None = account.recalled.get(key)
        if found is None:
            found = self._stage(account, account.allocated)
            account.recalled[key] = found
        return found

    def _stage(self, account: Account, held: Sequence[int]) -> int:
        """Of a queue that holds so much: 0 over its fair share, 1 over its quota, 2 within it."""
        if any(held[kind] > account.entitled[kind] for kind in self.kinds):
            return 0
        return 1 if any(held[kind] > account.quota[kind] for kind in self.kinds) else 2

    def may_evict(self) -> bool:
        """Within quota or fair share, or owed a turn by somebody."""
        return self.entitled or (self.turns.on and any(map(self.may_look_at, self.board.by_project)))


class Preempt(Law):
    """Inside a project: strictly lower priority gives way."""

    kind = Kind.PREEMPT
    relieves = frozenset({Reason.PROJECT_LIMIT, Reason.DEPARTMENT_LIMIT})

    @classmethod
    def finds_nothing_beyond_share(cls, board: Board, gang: Gang) -> bool:
        lowest = lowest_priority(board, gang.account)
        return lowest is None or lowest >= gang.workload.priority

    def may_look_at(self, account: Account) -> bool:
        return account is self.gang.account

    def projects(self) -> Iterator[Account]:
        return (account for account in (self.gang.account,) if account in self.board.by_project)

    def would_take_from(self, gang: Gang) -> bool:
        return super().would_take_from(gang) and gang.workload.priority < self.gang.workload.priority

    def rule(self, lump: Lump) -> str | None:
        same = lump.gang.account is self.gang.account
        return "priority" if same and self.may_take_from(lump.gang) else None

    def _min_runtime(self, account: Account) -> int:
        found = (step.queue.preempt_min_runtime for step in account.path)
        return next((s for s in found if s is not None), self.board.pool.preempt_min_runtime)


class Shrink(Reclaim):
    """Growth only: across queues as in reclaim, inside the project from no higher priority."""

    kind = Kind.SHRINK
    takes_gangs = False
    relieves = frozenset({Reason.PROJECT_LIMIT, Reason.DEPARTMENT_LIMIT})

    @classmethod
    def needs_share(cls, board: Board) -> bool:
        del board
        return False  # it may swap its own growth

    @classmethod
    def finds_nothing_beyond_share(cls, board: Board, gang: Gang) -> bool:
        return not has_elastic(board, gang.account)

    def __init__(self, board: Board, gang: Gang, asked: tuple[int, int, int]) -> None:
        super().__init__(board, gang, asked)
        # Beyond its share a project may swap its own growth for the minimum, but hold no more than before.
        project = gang.account
        held = [max(due, now) for due, now in zip(project.entitled, project.allocated, strict=True)]
        self.most = [min(cap, most) for cap, most in zip(project.cap, held, strict=True)]

    def ceiling(self, account: Account) -> Sequence[int]:
        if account is self.gang.account and not self.entitled:
            return self.most
        return super().ceiling(account)

    def may_evict(self) -> bool:
        return True

    def may_look_at(self, account: Account) -> bool:
        return account is self.gang.account or (self.entitled and super().may_look_at(account))

    def projects(self) -> Iterator[Account]:
        if self.gang.account in self.board.by_project:
            yield self.gang.account
        if self.entitled:
            yield from super().projects()

    def rule(self, lump: Lump) -> str | None:
        if lump.gang.account is self.gang.account:
            return "fulfilment" if lump.gang.workload.priority <= self.gang.workload.priority else None
        return super().rule(lump)

    def inside_key(self, lump: Lump) -> Key:
        return (lump.group, -lump.fulfilment, *super().inside_key(lump))


class ShrinkForGrowth(Reclaim):
    """Growth inside a fair share takes growth beyond another."""

    kind = Kind.GROW
    takes_gangs = False

    def inside_key(self, lump: Lump) -> Key:
        return (lump.group, -lump.fulfilment, *super().inside_key(lump))


class Consolidate(Law):
    """Any preemptible pod may be moved, none may be lost."""

    kind = Kind.CONSOLIDATE

    @classmethod
    def needs_share(cls, board: Board) -> bool:
        del board
        return True

    takes_growth = False
    moves_only = True
    silent = True

    def __init__(self, board: Board, gang: Gang, asked: tuple[int, int, int]) -> None:
        super().__init__(board, gang, asked)
        # At every level: nobody is moved for what a sibling of its department may take back at once.
        self.entitled = all(within(a.allocated, a.entitled, asked) for a in gang.account.path)
        settings = board.pool.consolidation
        self.most_moves = settings.max_moves
        self.most_trials = NO_BOUND if settings.max_trials is None else settings.max_trials

    def may_look_at(self, account: Account) -> bool:
        del account
        return True

    def rule(self, lump: Lump) -> str | None:
        del lump
        return "consolidate"

    def may_evict(self) -> bool:
        return self.entitled

    def _min_runtime(self, account: Account) -> int:
        """A move interrupts like any other: the longer of the two guarantees counts."""
        found = (step.queue.preempt_min_runtime for step in account.path)
        inside = next((s for s in found if s is not None), self.board.pool.preempt_min_runtime)
        return max(inside, super()._min_runtime(account))

    def inside_key(self, lump: Lump) -> Key:
        return (lump.lost, lump.amounts[0], *super().inside_key(lump))

    def cost(self, lumps: Sequence[Lump]) -> Key:
        """The fewest GPU-hours first, then the fewest moves."""
        freed = sum(lump.amounts[0] for lump in lumps)
        return (sum(lump.lost for lump in lumps), len(lumps), freed)
