"""Base class of preemption policies, which define the victims, their order and their limits."""

from collections.abc import Iterator, Sequence

from scheduler.engine.board.board import Board
from scheduler.engine.board.gang import Gang
from scheduler.engine.board.ledger import KINDS, NO_BOUND, QueueAccount, fits_within
from scheduler.engine.plan import Kind, Reason
from scheduler.engine.preemption.victims.units import EvictedByQueue, Victim, is_within_min_runtime

Key = tuple[float | int | str, ...]


class PreemptionPolicy:
    """Base class of preemption policies. Non-preemptible gangs and the preemptor are never victims."""

    kind: Kind
    eviction_kind: Kind | None = None  # kind of eviction for entire gangs; None means `kind`
    evicts_gangs = True
    evicts_extra_replicas = True
    moves_only = False  # whether all victims must be placed again
    unreported: frozenset[Reason] = frozenset()  # reasons that another policy reports in more detail
    relievable_bounds: frozenset[Reason] = frozenset()  # limits that evictions can help to meet
    max_moves: int | None = None
    max_trials = NO_BOUND

    def __init__(self, board: Board, gang: Gang, requested: tuple[int, int, int]) -> None:
        self.board, self.gang, self.requested = board, gang, requested
        self.kinds = [kind for kind in KINDS if requested[kind] > 0]
        # Whether a minimum runtime also protects gangs that start in this cycle.
        self.protects_new_gangs = False
        self._seconds: dict[QueueAccount, int] = {}
        self._diverging: dict[QueueAccount, tuple[QueueAccount, QueueAccount] | None] = {}
        self.stays_in_quota = {
            account: fits_within(account.allocated, account.quota, requested) for account in gang.account.path
        }

    @classmethod
    def rejects_gangs_over_share(cls, board: Board) -> bool:
        """Return whether gangs over their fair share are rejected outright."""
        del board
        return False

    @classmethod
    def has_no_victims_if_over_share(cls, board: Board, gang: Gang) -> bool:
        """Return whether a preemptor over its fair share would have no possible victims."""
        del board, gang
        return False

    def may_evict_from_queue(self, account: QueueAccount) -> bool:
        """Return whether the project's workloads may be evicted now."""
        raise NotImplementedError

    @property
    def is_limited_to_own_project(self) -> bool:
        """Whether only workloads in the preemptor's own project may be victims."""
        return False

    def projects(self) -> Iterator[QueueAccount]:
        """Yield the projects whose workloads may be victims."""
        return (account for account in self.board.by_project if self.may_evict_from_queue(account))

    def is_candidate_victim(self, gang: Gang) -> bool:
        """Return whether the gang could be a victim if it were preemptible and not protected."""
        return gang is not self.gang

    def may_evict_gang(self, gang: Gang) -> bool:
        """Return whether the gang may be a victim, ignoring its queue and its minimum runtime."""
        return not gang.non_preemptible and self.is_candidate_victim(gang)

    def rule(self, victim: Victim) -> str | None:
        """Return the rule that allows the victim's eviction now, or None."""
        raise NotImplementedError

    def is_fair_outcome(self, sides: "set[tuple[QueueAccount, QueueAccount]]") -> bool:
        """Return whether the outcome is fair to the victim queues.

        `sides` contains pairs of the preemptor's queue and a victim queue.
        """
        del sides
        return True

    def retries_within_share(self) -> bool:
        """Return whether to retry with evictions that keep the department within its share."""
        return False

    def allow_exceeding_share_again(self) -> None:
        """Undo the effect of `retries_within_share`: let the department exceed its share again."""

    def retries_without_new_gangs(self) -> bool:
        """Return whether to try again without evicting the victims that started in this cycle and have a
        minimum runtime.
        """
        changed = not self.protects_new_gangs and any(
            map(self._is_protected_next_cycle, self.board.newly_placed_gangs())
        )
        self.protects_new_gangs = self.protects_new_gangs or changed
        return changed

    def queue_key(self, account: QueueAccount) -> Key:
        """Return a victim queue's sort key. Victims of the queue with the smallest key are evicted first."""
        del account
        return ()

    def victim_key(self, victim: Victim) -> Key:
        """Return the sort key of a victim within its queue.

        Extra replicas come first, then optional groups, then gangs.
        """
        if victim.cached_key is None:
            workload = victim.gang.workload
            victim.cached_key = (
                victim.is_gang,
                victim.is_group,
                -victim.fulfilment,
                workload.priority,
                victim.cost_gpu_seconds,
                -max(victim.started, workload.submitted),
                -workload.submitted,
                victim.gang.name,
                -victim.index,
            )
        return victim.cached_key

    def worst_queue_stage(self, victims: Sequence[Victim]) -> Key:
        """Return the largest `queue_stage` among the victims."""
        del victims
        return ()

    def queue_stage(self, victim: Victim, evicted: EvictedByQueue) -> Key:
        """Return a sort key that says how far the evictions reduce the allocation of the victim's queue.

        A larger key is worse.
        """
        del victim, evicted
        return ()

    def victim_sort_key(self, victim: Victim) -> Key | None:
        """Return a victim's sort key, or None if the policy does not allow its eviction now."""
        queue_key_prefix = self.queue_key_prefix(victim)
        return None if queue_key_prefix is None else queue_key_prefix + self.victim_key(victim)

    def queue_key_prefix(self, victim: Victim) -> Key | None:
        """Return the part of the victim's sort key that depends on its queue.

        Return None if the policy does not allow the eviction now.
        """
        if self.rule(victim) is None:
            return None
        return (*self.worst_queue_stage((victim,)), *self.queue_key(victim.gang.account))

    def cost(self, victims: Sequence[Victim]) -> Key:
        """Return the cost of evicting a set of victims, regardless of their queues."""
        freed = sum([victim.amounts[0] for victim in victims])
        worst = max([self.victim_key(victim) for victim in victims])
        return (sum([victim.is_gang for victim in victims]), *worst, len(victims), freed)

    def may_evict(self) -> bool:
        """Return whether the preemptor may evict other workloads."""
        return True

    def max_allocation(self, account: QueueAccount) -> Sequence[int]:
        """Return how much the preemptor's project or department may have allocated after the evictions."""
        return account.limit

    def threshold(self, victim_queue: QueueAccount, kind: int) -> int | None:
        """Return the amount that the victim queue's allocation must exceed before its last eviction.

        Return None if there is no such threshold.
        """
        del victim_queue, kind
        return None

    def is_protected(self, gang: Gang) -> bool:
        """Return whether the gang must not be evicted now, for example because it is within its minimum
        runtime.
        """
        if gang.non_preemptible or gang is self.gang:
            return True
        seconds = self._gang_min_runtime(gang)
        if seconds > 0 and is_within_min_runtime(self.board, gang, seconds):
            return True
        return self.protects_new_gangs and self._is_protected_next_cycle(gang)

    def _is_protected_next_cycle(self, gang: Gang) -> bool:
        return (
            self._gang_min_runtime(gang) > 0
            and not gang.non_preemptible
            and self.board.starts_entire_gang(gang)
        )

    def _gang_min_runtime(self, gang: Gang) -> int:
        return self.min_runtime(gang.account)

    def min_runtime(self, project: QueueAccount) -> int:
        """Return the minimum runtime in seconds of the project's gangs."""
        if project not in self._seconds:
            self._seconds[project] = self._min_runtime(project)
        return self._seconds[project]

    def _min_runtime(self, account: QueueAccount) -> int:
        result = (step.queue.reclaim_min_runtime for step in account.path)
        return next((s for s in result if s is not None), self.board.pool.reclaim_min_runtime)

    def compared_queues(self, account: QueueAccount, rule: str) -> tuple[QueueAccount, QueueAccount] | None:
        """Return the pair of queues that the rule compares for a victim in the project, or None."""
        del rule
        return self.diverging_queues(account)

    def diverging_queues(self, account: QueueAccount) -> tuple[QueueAccount, QueueAccount] | None:
        """Return the preemptor's queue and the victim queue at the first level where they differ, or None if
        they are the same.
        """
        if account not in self._diverging:
            levels = zip(reversed(self.gang.account.path), reversed(account.path), strict=False)
            self._diverging[account] = next((sides for sides in levels if sides[0] is not sides[1]), None)
        return self._diverging[account]
