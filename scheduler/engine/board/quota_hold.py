"""Hold a project's quota for its first blocked non-preemptible workload, so that lower-priority ones do not
keep using it. Preemptible workloads and other projects may still use the held resources. Holds are not
stored: each cycle computes them again.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

from berth.core.values.amounts import RESOURCES
from scheduler.engine.board.board import Board
from scheduler.engine.board.gang import Gang, PendingGroup
from scheduler.engine.board.ledger import KINDS, NOTHING, QueueAccount, fits_within
from scheduler.engine.board.order import gang_sort_key
from scheduler.engine.board.run_ends import declared_end_time, has_finite_runtime, has_waited_long_enough
from scheduler.engine.plan import Numbers


def hold_quotas(board: Board, groups: Iterable[PendingGroup]) -> None:
    """Hold the quota of each project with a non-preemptible gang that has been blocked long enough."""
    waiting: dict[QueueAccount, list[Gang]] = {}
    for group in groups:
        gang = group.gangs[group.at]
        if gang.non_preemptible and has_waited_long_enough(board, gang):
            waiting.setdefault(gang.account, []).append(gang)
    for account in board.ledger.accounts.values():
        gangs = sorted(waiting.get(account, ()), key=gang_sort_key)
        holds = [hold for gang in gangs if (hold := QuotaHold(board, gang)).fits_whole_quota()]
        blocked = (
            hold for hold in holds if not hold.fits_unused_quota() and hold.awaited_release() is not None
        )
        account.quota_holds = (*holds[:1], *(hold for hold in islice(blocked, 1) if hold is not holds[0]))


class QuotaRelease(NamedTuple):
    """Amounts that a project's non-preemptible gangs will release before a pending gang can start.

    `until` is None if that depends on gangs without a declared end.
    """

    until: int | None
    amounts: Sequence[int]


@dataclass(frozen=True, slots=True)
class QuotaHold:
    """Hold on a project's quota for one of its gangs."""

    board: Board
    gang: Gang

    def fits_whole_quota(self) -> bool:
        """Return whether the gang would fit if its quota were unused.

        Return False if several pools share the quota, because such a quota is never held.
        """
        account, requested = self.gang.account, self.gang.requested
        return account.group is None and all(
            fits_within(NOTHING, queue.non_preemptible_quota, requested) for queue in account.path
        )

    def fits_unused_quota(self) -> bool:
        account = self.gang.account
        return fits_within(account.non_preemptible, account.non_preemptible_quota, self.gang.requested)

    def awaited_release(self) -> QuotaRelease | None:
        """Return the amounts that will be released before the gang can start, or None if no quota is held."""
        if self.gang.has_pods:
            return None
        if self.fits_unused_quota():
            # Without this hold, lower-priority gangs could use the quota on other nodes in the meantime.
            nodes = self.board.cycle.held_nodes()
            if nodes is None or nodes.name != self.gang.name:
                return None
            return QuotaRelease(nodes.until, NOTHING)
        cache = self.gang.account.cache  # cleared when the allocation changes
        key = "release", self.gang.requested
        if key not in cache:
            cache[key] = _next_release(self.board, self.gang)
        result: QuotaRelease | None = cache[key]
        return result

    def conflict_numbers(self, gang: Gang, requested: Sequence[int]) -> Numbers | None:
        """Return figures about the first resource whose held quota the lower-priority gang would use.

        Return None if there is no such resource, or if the gang ends before the quota is needed.
        """
        if gang.workload.priority >= self.gang.workload.priority:
            return None
        release, end = self.awaited_release(), declared_end_time(gang, self.board.now)
        if release is None or (end is not None and release.until is not None and end <= release.until):
            return None
        account, held = gang.account, self.gang.requested
        for kind in KINDS:
            allocated, quota = account.non_preemptible[kind], account.non_preemptible_quota[kind]
            missing = allocated - release.amounts[kind] + held[kind] + requested[kind] - quota
            if held[kind] and requested[kind] and missing > 0:
                return {
                    "queue": account.name,
                    "resource": RESOURCES[kind],
                    "requested": requested[kind],
                    "allocated": allocated,
                    "bound": quota,
                    "missing": missing,
                    "held": held[kind],
                    "behind": self.gang.name,
                    "until": release.until,
                }
        return None


def _next_release(board: Board, gang: Gang) -> QuotaRelease | None:
    """Return when enough non-preemptible quota is released for the gang, and all amounts released by then.

    Return None if too little quota will ever be released.
    """
    account, now = gang.account, board.now
    used, amounts = list(account.non_preemptible), [0, 0, 0]
    gangs = (other for other in board.by_project.get(account, {}).values() if other.non_preemptible)
    for ending in sorted(filter(has_finite_runtime, gangs), key=lambda other: _end_sort_key(other, now)):
        for part in ending.parts:
            for kind in KINDS:
                amount = part.amounts[kind] * len(part.live)
                used[kind] -= amount
                amounts[kind] += amount
        if fits_within(used, account.non_preemptible_quota, gang.requested):
            return QuotaRelease(declared_end_time(ending, now), amounts)
    return None


def _end_sort_key(gang: Gang, now: int) -> tuple[bool, int, str]:
    end, started = declared_end_time(gang, now), gang.workload.started
    if end is not None:
        return False, end, gang.name
    return True, now if started is None else started, gang.name
