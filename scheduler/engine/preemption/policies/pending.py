"""Preemption policies: which workloads a preemptor may evict, and how far each queue may be reduced.

Each policy object serves one preemptor.
"""

from collections.abc import Hashable, Iterator, Sequence

from scheduler.engine.board.board import Board
from scheduler.engine.board.eligible import exceeded_share, lowest_running_priority
from scheduler.engine.board.gang import Gang
from scheduler.engine.board.ledger import NO_BOUND, NOTHING, QueueAccount, fits_within, siblings_over_quota
from scheduler.engine.fair_share.turns import TurnTaking
from scheduler.engine.fair_share.usage_history import history_seconds
from scheduler.engine.plan import Kind, Reason
from scheduler.engine.preemption.policies.base import Key, PreemptionPolicy
from scheduler.engine.preemption.victims.units import EvictedByQueue, Victim, add_evicted_amounts


def _have_same_queue_and_size(victims: Sequence[Victim]) -> bool:
    account, amounts = victims[0].gang.account, victims[0].amounts
    return all(victim.gang.account is account and victim.amounts == amounts for victim in victims)


def _leaf_projects(account: QueueAccount) -> Iterator[QueueAccount]:
    if not account.children:
        yield account
    for child in account.children:
        yield from _leaf_projects(child)


class Reclaim(PreemptionPolicy):
    """Reclaim resources from other queues.

    The preemptor's queue and the victim's queue are compared at the first level where their paths differ.
    """

    kind = Kind.RECLAIM
    relievable_bounds = frozenset({Reason.DEPARTMENT_LIMIT})

    @classmethod
    def rejects_gangs_over_share(cls, board: Board) -> bool:
        # With a usage history, queues take turns, so a gang over its fair share may still start.
        return not history_seconds(board.pool.fair_share)

    def __init__(self, board: Board, gang: Gang, requested: tuple[int, int, int]) -> None:
        super().__init__(board, gang, requested)
        self.deserved = exceeded_share(gang, requested) is None
        self.turns = TurnTaking(board, gang, requested)
        # Results of `queue_key_prefix`, each with the version of the victim queue for which it is valid.
        self._queue_prefixes: dict[Hashable, tuple[int, Key | None]] = {}
        # Whether a proposal exceeded the department's share, and whether the retry must stay within it.
        self._exceeded_share = self._capped_at_share = False

    def may_evict_from_queue(self, account: QueueAccount) -> bool:
        sides = self.diverging_queues(account)
        return sides is not None and any(True for _ in self._reclaim_rules(*sides, account))

    def projects(self) -> Iterator[QueueAccount]:
        """Yield the projects of over-quota queues whose resources can be reclaimed."""
        kinds, by_project = tuple(self.kinds), self.board.by_project
        for own_queue in self.gang.account.path:
            level = own_queue.parent.children if own_queue.parent else self.board.ledger.roots
            for victim_queue in siblings_over_quota(own_queue, level, kinds):
                if victim_queue is not own_queue:
                    yield from (
                        account
                        for account in _leaf_projects(victim_queue)
                        if account in by_project
                        and any(True for _ in self._reclaim_rules(own_queue, victim_queue, account))
                    )

    def thresholds(self, project: QueueAccount) -> list[tuple[int, int]]:
        """Return (resource, threshold) for each resource that can be reclaimed from the project's queue."""
        sides = self.diverging_queues(project)
        return [(kind, above) for kind, above, _ in self._reclaim_rules(*sides, project)] if sides else []

    def threshold(self, victim_queue: QueueAccount, kind: int) -> int | None:
        project = next(iter(_leaf_projects(victim_queue)))
        sides = self.diverging_queues(project)
        above = list(self._reclaim_rules(*sides, project)) if sides else []
        return above[0][1] if len(above) == 1 and above[0][0] == kind else None

    def rule(self, victim: Victim) -> str | None:
        sides = self.diverging_queues(victim.gang.account)
        if sides is None:
            return None
        own_queue, victim_queue = sides
        for kind, threshold, rule_name in self._reclaim_rules(own_queue, victim_queue, victim.gang.account):
            # Extra replicas of the gang are evicted before its core.
            allocated = victim_queue.allocated[kind]
            if victim.amounts[kind] > 0 and allocated - victim.extra_amounts[kind] > threshold:
                if rule_name == "above_share" and (
                    self.stays_in_quota[own_queue] or not self.turns.history_counts
                ):
                    return rule_name
                return (
                    rule_name
                    if self._usage_allows_eviction(own_queue, victim_queue, kind, rule_name, victim)
                    else None
                )
        return None

    def _usage_allows_eviction(
        self, own_queue: QueueAccount, victim_queue: QueueAccount, kind: int, rule_name: str, victim: Victim
    ) -> bool:
        amount = victim.amounts[self.turns.kind]
        turn_queues = self.turns.turn_taking_queues(own_queue, victim_queue, victim.gang.account)
        if rule_name == "above_share" and kind == self.turns.kind:
            return self.turns.may_be_reclaimed(*turn_queues, amount)
        reaches_into_share = (
            rule_name == "above_share"
            and victim_queue.allocated[kind] - victim.amounts[kind] < victim_queue.deserved[kind]
        )
        return (
            self.turns.must_yield_turn(*turn_queues, amount)
            if reaches_into_share or rule_name == "turn"
            else True
        )

    def _reclaim_rules(
        self, own_queue: QueueAccount, victim_queue: QueueAccount, project: QueueAccount
    ) -> Iterator[tuple[int, int, str]]:
        """Yield (resource, threshold, rule) for each resource that can be reclaimed from the project."""
        if not self.deserved:
            if self.turns.may_yield_turn(*self.turns.turn_taking_queues(own_queue, victim_queue, project)):
                for kind in self.kinds:
                    if victim_queue.allocated[kind] > victim_queue.quota[kind]:
                        yield kind, victim_queue.quota[kind], "turn"
            return
        thresholds = victim_queue.quota if self.stays_in_quota[own_queue] else victim_queue.deserved
        for kind in self.kinds:
            allocated = victim_queue.allocated[kind]
            if allocated > thresholds[kind]:
                is_above_share = allocated > victim_queue.deserved[kind]
                yield kind, thresholds[kind], "above_share" if is_above_share else "within_quota"

    def compared_queues(self, account: QueueAccount, rule: str) -> tuple[QueueAccount, QueueAccount] | None:
        sides = super().compared_queues(account, rule)
        return self.turns.turn_taking_queues(*sides, account) if sides and rule == "turn" else sides

    def is_fair_outcome(self, sides: set[tuple[QueueAccount, QueueAccount]]) -> bool:
        for own_queue, victim_queue in sides if self.deserved else ():
            ratio = own_queue.saturation(self.requested)
            if ratio > 1 and ratio >= victim_queue.saturation(self.requested):
                self._exceeded_share = True
                return False
        return True

    def retries_within_share(self) -> bool:
        changed = self._exceeded_share and not self._capped_at_share
        self._capped_at_share = self._capped_at_share or changed
        return changed

    def allow_exceeding_share_again(self) -> None:
        self._exceeded_share = self._capped_at_share = False

    def max_allocation(self, account: QueueAccount) -> Sequence[int]:
        if self._capped_at_share:
            return list(map(min, account.limit, account.deserved))
        return super().max_allocation(account)

    def queue_key_prefix(self, victim: Victim) -> Key | None:
        gang = victim.gang
        alike = gang.account, gang.workload.priority, victim.is_gang, victim.amounts, victim.extra_amounts
        sides = self.diverging_queues(gang.account)
        version = (sides[1] if sides else gang.account).version
        cached = self._queue_prefixes.get(alike)
        if cached is None or cached[0] != version:
            cached = self._queue_prefixes[alike] = version, super().queue_key_prefix(victim)
        return cached[1]

    def queue_key(self, account: QueueAccount) -> Key:
        sides = self.diverging_queues(account)
        victim_queue = sides[1] if sides else account
        return (
            *self._queue_sort_key(victim_queue),
            *(self._queue_sort_key(account) if victim_queue is not account else ()),
        )

    def _queue_sort_key(self, account: QueueAccount) -> Key:
        """Return a queue's sort key: stage (over share first), lowest rank, most saturated, newest."""
        key = ("queue sort key", self.requested)
        result: Key | None = account.cache.get(key)
        if result is None:
            saturation = account.saturation(self.requested)
            result = self._current_stage(account), account.rank, -saturation, -account.created, account.name
            account.cache[key] = result
        return result

    def worst_queue_stage(self, victims: Sequence[Victim]) -> Key:
        """Return the worst stage of the victims' queues: over share, over quota, or within quota."""
        if len(victims) == 1 or _have_same_queue_and_size(victims):
            return self._worst_stage_of_equal_victims(victims[0], len(victims))
        evicted, worst = EvictedByQueue(), Key()
        for victim in victims:
            worst = max(worst, self.queue_stage(victim, evicted))
            add_evicted_amounts(evicted, victim)
        return worst

    def queue_stage(self, victim: Victim, evicted: EvictedByQueue) -> Key:
        account, amounts = victim.gang.account, victim.amounts
        sides = self.diverging_queues(account)
        victim_queue = sides[1] if sides else account
        before = evicted.get(victim_queue, NOTHING)
        stage = inside = self._stage_after_evictions(victim_queue, before)
        if account is not victim_queue:
            inside = self._stage_after_evictions(account, evicted.get(account, NOTHING))
        below_quota = True
        for kind in self.kinds:
            left = victim_queue.allocated[kind] - before[kind] - amounts[kind]
            if amounts[kind] and left >= victim_queue.quota[kind]:
                below_quota = False
        return below_quota, stage, self._usage_rank(victim_queue, account), inside

    def _worst_stage_of_equal_victims(self, victim: Victim, count: int) -> Key:
        account = victim.gang.account
        sides = self.diverging_queues(account)
        victim_queue = sides[1] if sides else account
        allocated, quota, amounts = victim_queue.allocated, victim_queue.quota, victim.amounts
        below_quota = True
        for kind in self.kinds:
            if amounts[kind] and allocated[kind] - amounts[kind] * count >= quota[kind]:
                below_quota = False
        if count == 1:
            return (
                below_quota,
                self._current_stage(victim_queue),
                self._usage_rank(victim_queue, account),
                self._current_stage(account),
            )
        evicted = [amount * (count - 1) for amount in amounts]
        stage = inside = self._stage_after_evictions(victim_queue, evicted)
        if account is not victim_queue:
            inside = self._stage_after_evictions(account, evicted)
        return below_quota, stage, self._usage_rank(victim_queue, account), inside

    def _usage_rank(self, victim_queue: QueueAccount, project: QueueAccount) -> float:
        """Return the negated relative usage, which is rounded so that queues with nearly equal usage are
        ordered by cost.
        """
        if not victim_queue.relative_usage:
            return 0.0
        kind = self.turns.kind
        queue = victim_queue if victim_queue.parent else project.turn_taking_queue(kind)
        return -round(queue.relative_usage[kind].used, 1)

    def _current_stage(self, account: QueueAccount) -> int:
        key = ("stage", tuple(self.kinds))
        result: int | None = account.cache.get(key)
        if result is None:
            result = self._stage_after_evictions(account, NOTHING)
            account.cache[key] = result
        return result

    def _stage_after_evictions(self, account: QueueAccount, evicted: Sequence[int]) -> int:
        """Return the queue's stage after the evictions: 0 for over share, 1 for over quota, and 2 for within
        quota.
        """
        stage = 2
        for kind in self.kinds:
            allocated = account.allocated[kind] - evicted[kind]
            if allocated > account.deserved[kind]:
                return 0
            if allocated > account.quota[kind]:
                stage = 1
        return stage

    def may_evict(self) -> bool:
        """Return whether the preemptor may evict: it is within its quota or fair share, or its queue has the
        next turn.
        """
        return self.deserved or (
            self.turns.is_active and any(map(self.may_evict_from_queue, self.board.by_project))
        )


class Preempt(PreemptionPolicy):
    """Preempt workloads of strictly lower priority within a project."""

    kind = Kind.PREEMPT
    relievable_bounds = frozenset({Reason.PROJECT_LIMIT, Reason.DEPARTMENT_LIMIT, Reason.CLUSTER_QUOTA})

    @classmethod
    def has_no_victims_if_over_share(cls, board: Board, gang: Gang) -> bool:
        lowest = lowest_running_priority(board, gang.account)
        return lowest is None or lowest >= gang.workload.priority

    def may_evict_from_queue(self, account: QueueAccount) -> bool:
        return account is self.gang.account

    @property
    def is_limited_to_own_project(self) -> bool:
        return True

    def projects(self) -> Iterator[QueueAccount]:
        return (account for account in (self.gang.account,) if account in self.board.by_project)

    def is_candidate_victim(self, gang: Gang) -> bool:
        return super().is_candidate_victim(gang) and gang.workload.priority < self.gang.workload.priority

    def rule(self, victim: Victim) -> str | None:
        same = victim.gang.account is self.gang.account
        return "priority" if same and self.may_evict_gang(victim.gang) else None

    def _min_runtime(self, account: QueueAccount) -> int:
        result = (step.queue.preempt_min_runtime for step in account.path)
        return next((s for s in result if s is not None), self.board.pool.preempt_min_runtime)


class Consolidate(PreemptionPolicy):
    """Move preemptible pods without evicting any."""

    kind = Kind.CONSOLIDATE

    @classmethod
    def rejects_gangs_over_share(cls, board: Board) -> bool:
        del board
        return True

    evicts_extra_replicas = False
    moves_only = True
    unreported = frozenset({Reason.NO_RECLAIMABLE_RESOURCES})

    def __init__(self, board: Board, gang: Gang, requested: tuple[int, int, int]) -> None:
        super().__init__(board, gang, requested)
        # Check every level, so that no pods move for capacity that a sibling may reclaim immediately.
        self.deserved = all(fits_within(a.allocated, a.deserved, requested) for a in gang.account.path)
        settings = board.pool.consolidation
        self.max_moves = settings.max_moves
        self.max_trials = NO_BOUND if settings.max_trials is None else settings.max_trials

    def may_evict_from_queue(self, account: QueueAccount) -> bool:
        del account
        return True

    def rule(self, victim: Victim) -> str | None:
        del victim
        return "consolidate"

    def may_evict(self) -> bool:
        return self.deserved

    def _min_runtime(self, account: QueueAccount) -> int:
        """Return the longer of the minimum runtimes for preemption and reclaim, in seconds, because a move
        must respect both.
        """
        result = (step.queue.preempt_min_runtime for step in account.path)
        inside = next((s for s in result if s is not None), self.board.pool.preempt_min_runtime)
        return max(inside, super()._min_runtime(account))

    def victim_key(self, victim: Victim) -> Key:
        return (victim.lost_gpu_seconds, victim.amounts[0], *super().victim_key(victim))

    def cost(self, victims: Sequence[Victim]) -> Key:
        """Return the cost of moves as (lost GPU-seconds, number of moves, moved milli-GPU)."""
        freed = sum(victim.amounts[0] for victim in victims)
        return (sum(victim.lost_gpu_seconds for victim in victims), len(victims), freed)
