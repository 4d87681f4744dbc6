"""Preemption policies that evict extra replicas, or that scale an elastic workload up."""

from collections.abc import Iterator, Sequence

from scheduler.engine.board.board import Board
from scheduler.engine.board.eligible import has_elastic_gang
from scheduler.engine.board.gang import Gang
from scheduler.engine.board.ledger import QueueAccount, fits_within
from scheduler.engine.plan import Kind, Reason
from scheduler.engine.preemption.policies.base import Key
from scheduler.engine.preemption.policies.pending import Reclaim
from scheduler.engine.preemption.victims.units import Victim


class ScaleDown(Reclaim):
    """Evict extra replicas in other queues and in the preemptor's own project."""

    kind = Kind.SHRINK
    evicts_gangs = False
    relievable_bounds = frozenset({Reason.PROJECT_LIMIT, Reason.DEPARTMENT_LIMIT, Reason.CLUSTER_QUOTA})

    @classmethod
    def rejects_gangs_over_share(cls, board: Board) -> bool:
        del board
        return False  # a project may give up extra replicas for its own pending gang

    @classmethod
    def has_no_victims_if_over_share(cls, board: Board, gang: Gang) -> bool:
        return not has_elastic_gang(board, gang.account)

    def __init__(self, board: Board, gang: Gang, requested: tuple[int, int, int]) -> None:
        super().__init__(board, gang, requested)
        # A project over its share may replace extra replicas with a gang's minimum, but not gain resources.
        project = gang.account
        self.project_maximum = list(map(min, project.limit, map(max, project.deserved, project.allocated)))

    def max_allocation(self, account: QueueAccount) -> Sequence[int]:
        if account is self.gang.account and not self.deserved:
            return self.project_maximum
        return super().max_allocation(account)

    def may_evict(self) -> bool:
        return True

    def may_evict_from_queue(self, account: QueueAccount) -> bool:
        return account is self.gang.account or (self.deserved and super().may_evict_from_queue(account))

    @property
    def is_limited_to_own_project(self) -> bool:
        return not self.deserved

    def projects(self) -> Iterator[QueueAccount]:
        if self.gang.account in self.board.by_project:
            yield self.gang.account
        if self.deserved:
            yield from super().projects()

    def rule(self, victim: Victim) -> str | None:
        if victim.gang.account is self.gang.account:
            return "fulfilment" if victim.gang.workload.priority <= self.gang.workload.priority else None
        return super().rule(victim)

    def victim_key(self, victim: Victim) -> Key:
        return (victim.is_group, -victim.fulfilment, *super().victim_key(victim))


class ScaleDownForScaleUp(Reclaim):
    """Evict extra replicas of queues over their fair share, so that queues within their fair share can scale
    up.
    """

    kind = Kind.GROW
    evicts_gangs = False

    def victim_key(self, victim: Victim) -> Key:
        return (victim.is_group, -victim.fulfilment, *super().victim_key(victim))


class ReclaimForScaleUp(Reclaim):
    """Reclaim borrowed resources, so that a workload can scale up within its quota."""

    kind = Kind.GROW
    eviction_kind = Kind.RECLAIM

    @classmethod
    def stays_within_quota(cls, gang: Gang, requested: tuple[int, int, int]) -> bool:
        """Return whether all of the gang's queues would stay within their quotas."""
        return all(fits_within(account.allocated, account.quota, requested) for account in gang.account.path)

    def rule(self, victim: Victim) -> str | None:
        leaves_quotas = all(
            account.allocated[kind] - victim.amounts[kind] >= account.quota[kind]
            for account in victim.gang.account.path
            if account not in self.gang.account.path
            for kind in self.kinds
            if victim.amounts[kind]
        )
        return super().rule(victim) if leaves_quotas else None
