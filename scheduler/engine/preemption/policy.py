"""Base class of the preemption policies: victims, their order and their bounds."""

from collections.abc import Iterator, Sequence

from scheduler.engine.board.board import Board
from scheduler.engine.board.gang import Gang
from scheduler.engine.board.ledger import KINDS, NO_BOUND, QueueAccount, within
from scheduler.engine.plan import Kind, Reason
from scheduler.engine.preemption.victims import Victim, within_min_runtime

Key = tuple[float | int | str, ...]


class PreemptionPolicy:
    """Base class of the policies. Non-preemptible gangs and the preemptor itself are never victims."""

    kind: Kind
    takes_gangs = True
    takes_growth = True
    moves_only = False  # all victims must be placed again
    unreported: frozenset[Reason] = frozenset()  # refusals for which other policies have the better numbers
    relieves: frozenset[Reason] = frozenset()  # bounds under which evictions can make room
    most_moves: int | None = None
    most_trials = NO_BOUND

    def __init__(self, board: Board, gang: Gang, requested: tuple[int, int, int]) -> None:
        self.board, self.gang, self.requested = board, gang, requested
        self.kinds = [kind for kind in KINDS if requested[kind] > 0]
        self.spares_fresh = False  # also protect gangs that this cycle starts, if they have a minimum runtime
        self._seconds: dict[QueueAccount, int] = {}
        self._diverging: dict[QueueAccount, tuple[QueueAccount, QueueAccount] | None] = {}
        self.stays_in_quota = {
            account: within(account.allocated, account.quota, requested) for account in gang.account.path
        }

    @classmethod
    def needs_share(cls, board: Board) -> bool:
        """Return whether gangs over their fair share are refused outright."""
        del board
        return False

    @classmethod
    def finds_nothing_beyond_share(cls, board: Board, gang: Gang) -> bool:
        """Return whether there is certainly no victim for this gang, which is beyond its fair share."""
        del board, gang
        return False

    def may_take_from_queue(self, account: QueueAccount) -> bool:
        """Return whether the project may have victims now."""
        raise NotImplementedError

    def projects(self) -> Iterator[QueueAccount]:
        """Yield the projects that may have victims."""
        return (account for account in self.board.by_project if self.may_take_from_queue(account))

    def would_take_from(self, gang: Gang) -> bool:
        """Return whether the gang could be a victim if it were preemptible and not protected."""
        return gang is not self.gang

    def may_take_from(self, gang: Gang) -> bool:
        """Return whether the gang could be a victim, its queue and minimum runtime aside."""
        return not gang.non_preemptible and self.would_take_from(gang)

    def rule(self, victim: Victim) -> str | None:
        """Return the rule that allows this victim now, or None."""
        raise NotImplementedError

    def holds(self, sides: "set[tuple[QueueAccount, QueueAccount]]") -> bool:
        """Return whether the final outcome is fair."""
        del sides
        return True

    def takes_more_inside(self) -> bool:
        """Return whether to propose again, so that evictions inside the department keep it within its due."""
        return False

    def spares_more(self) -> bool:
        """Return whether to propose again without gangs that start now and are protected in the next cycle.

        The start of such a gang could still be withdrawn, but another selection may exist. From now on, such
        gangs are protected as in the next cycle.
        """
        changed = not self.spares_fresh and any(map(self._is_guarded_next, self.board.fresh_gangs()))
        self.spares_fresh = self.spares_fresh or changed
        return changed

    def queue_key(self, account: QueueAccount) -> Key:
        """Return the sort key of a victim queue, the smallest first.

        The key changes with every selected victim.
        """
        del account
        return ()

    def inside_key(self, victim: Victim) -> Key:
        """Return the sort key of a victim inside its queue: growth, then optional groups, then gangs.

        Equal victims are ordered by priority, lost work and age.
        """
        if victim.place is None:
            workload = victim.gang.workload
            victim.place = (
                victim.whole,
                victim.is_group,
                -victim.fulfilment,
                workload.priority,
                victim.lost_gpu_seconds,
                -max(victim.started, workload.submitted),
                -workload.submitted,
                victim.gang.name,
                -victim.index,
            )
        return victim.place

    def standing(self, victims: Sequence[Victim]) -> Key:
        """Return the standing of the victims' queues: the smallest wins, however many workloads stop."""
        del victims
        return ()

    def key(self, victim: Victim) -> Key | None:
        """Return the sort key of a victim, the smallest first, or None if the victim is not allowed now."""
        ahead = self.ahead(victim)
        return None if ahead is None else ahead + self.inside_key(victim)

    def ahead(self, victim: Victim) -> Key | None:
        """Return the part of the key that victims of one queue may share, or None if not allowed now."""
        if self.rule(victim) is None:
            return None
        return (*self.standing((victim,)), *self.queue_key(victim.gang.account))

    def cost(self, victims: Sequence[Victim]) -> Key:
        """Return the cost of victims, whatever their queues.

        The cost comprises stopped workloads, the worst victim, the number of victims and the freed GPUs.
        """
        freed = sum([victim.amounts[0] for victim in victims])
        worst = max([self.inside_key(victim) for victim in victims])
        return (sum([victim.whole for victim in victims]), *worst, len(victims), freed)

    def may_evict(self) -> bool:
        """Return whether the preemptor deserves what it requests."""
        return True

    def ceiling(self, account: QueueAccount) -> Sequence[int]:
        """Return the maximum that a queue of the preemptor may have allocated in the end."""
        return account.limit

    def threshold(self, side: QueueAccount, kind: int) -> int | None:
        """Return the amount that the side must exceed before its last victim, or None for no bound."""
        del side, kind
        return None

    def is_protected(self, gang: Gang) -> bool:
        """Return whether the gang may not be evicted."""
        if gang.non_preemptible or gang is self.gang:
            return True
        seconds = self._guarded_for(gang)
        if seconds > 0 and within_min_runtime(self.board, gang, seconds):
            return True
        return self.spares_fresh and self._is_guarded_next(gang)

    def _is_guarded_next(self, gang: Gang) -> bool:
        return self._guarded_for(gang) > 0 and not gang.non_preemptible and self.board.starts(gang)

    def _guarded_for(self, gang: Gang) -> int:
        """Return the minimum runtime of the gang in seconds."""
        if gang.account not in self._seconds:
            self._seconds[gang.account] = self._min_runtime(gang.account)
        return self._seconds[gang.account]

    def _min_runtime(self, account: QueueAccount) -> int:
        result = (step.queue.reclaim_min_runtime for step in account.path)
        return next((s for s in result if s is not None), self.board.pool.reclaim_min_runtime)

    def diverging_queues(self, account: QueueAccount) -> tuple[QueueAccount, QueueAccount] | None:
        """Return the first differing queues on the paths of the preemptor and another project."""
        if account not in self._diverging:
            arrangements = zip(reversed(self.gang.account.path), reversed(account.path), strict=False)
            self._diverging[account] = next(
                (sides for sides in arrangements if sides[0] is not sides[1]), None
            )
        return self._diverging[account]
