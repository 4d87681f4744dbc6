"""Upper bounds on the resources that evictions could free, computed from sums only."""

from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import gcd
from typing import Any

from berth.core.amounts import RESOURCES
from scheduler.engine.board.gang import Gang
from scheduler.engine.board.ledger import KINDS, QueueAccount
from scheduler.engine.plan import Numbers, Reason
from scheduler.engine.preemption.policy import PreemptionPolicy
from scheduler.engine.preemption.selection import VictimSelection

Requested = tuple[int, int, int]


@dataclass(slots=True)
class _Sum:
    """Amounts that could be reclaimed from one side, per resource."""

    total: list[int] = field(default_factory=lambda: [0, 0, 0])
    guarded: list[int] = field(default_factory=lambda: [0, 0, 0])  # within minimum runtimes, not in `total`
    non_preemptible: list[int] = field(default_factory=lambda: [0, 0, 0])  # not in `total` either
    biggest: list[int] = field(default_factory=lambda: [0, 0, 0])  # amount of the biggest victim
    grain: list[int] = field(default_factory=lambda: [0, 0, 0])  # every victim frees a multiple of it


def shortfall(selection: VictimSelection) -> tuple[Reason, Numbers] | None:
    """Return the reason that evicting all possible victims would not suffice, or None if it might."""
    return _short(_sums(selection), selection.policy.requested)


@lru_cache(maxsize=256)
def shortfall_without_victims(
    free: tuple[int, int, int], requested: Requested
) -> tuple[Reason, Numbers] | None:
    """Return the shortfall if there are no possible victims."""
    return _short(_Sums(free), requested)


def _short(sums: "_Sums", requested: Requested) -> tuple[Reason, Numbers] | None:
    for kind in KINDS:
        if requested[kind] > sums.free[kind] + sums.takeable[kind]:
            numbers = sums.numbers(requested, kind)
            enough = numbers["protected"] >= numbers["missing"]
            return Reason.VICTIMS_PROTECTED if enough else Reason.NO_RECLAIMABLE_RESOURCES, numbers
    return None


def totals(selection: VictimSelection, resource: object) -> Numbers:
    """Return the numbers where the sums suffice.

    The numbers are for this resource if the policy reclaims it, else for the policy's first resource.
    """
    kinds = selection.policy.kinds
    kind = next((kind for kind in kinds if RESOURCES[kind] == resource), next(iter(kinds), 0))
    return {**_sums(selection).numbers(selection.policy.requested, kind), "missing": 0}


def biggest(selection: VictimSelection, kind: int) -> int:
    """Return an upper bound on the amount of a resource that evicting one gang could free."""
    return max((result.biggest[kind] for result in _sides(selection).values()), default=0)


@dataclass(frozen=True, slots=True)
class _Sums:
    """Sums over all sides: free, reclaimable and protected resources."""

    free: tuple[int, int, int]
    takeable: list[int] = field(default_factory=lambda: [0, 0, 0])
    guarded: list[int] = field(default_factory=lambda: [0, 0, 0])
    non_preemptible: list[int] = field(default_factory=lambda: [0, 0, 0])

    def numbers(self, requested: Requested, kind: int) -> dict[str, Any]:
        return {
            "resource": RESOURCES[kind],
            "requested": requested[kind],
            "free": self.free[kind],
            "reclaimable": self.takeable[kind],
            "missing": requested[kind] - self.free[kind] - self.takeable[kind],
            "protected": self.guarded[kind] + self.non_preemptible[kind],
            "by_runtime": self.guarded[kind],
            "non_preemptible": self.non_preemptible[kind],
        }


def _sums(selection: VictimSelection) -> _Sums:
    policy, sums = selection.policy, _Sums(selection.board.nodes.free())
    if not policy.moves_only:
        for side, result in _sides(selection).items():
            for kind in policy.kinds:
                sums.takeable[kind] += _most(policy, side, kind, result)
                sums.guarded[kind] += result.guarded[kind]
                sums.non_preemptible[kind] += result.non_preemptible[kind]
    return sums


def _sides(selection: VictimSelection) -> dict[QueueAccount, _Sum]:
    policy = selection.policy
    sides: dict[QueueAccount, _Sum] = {}
    for account in policy.projects():
        diverging_queues = policy.diverging_queues(account)
        side = diverging_queues[1] if diverging_queues else account
        result = _of_project(selection, account)
        sides[side] = _both(sides[side], result) if side in sides else result
    return sides


def _of_project(selection: VictimSelection, account: QueueAccount) -> _Sum:
    """Return the sum of a project.

    The sum is cached: while no gang is added, the remaining preemptible allocation stays reclaimable.
    """
    policy, cache = selection.policy, selection.board.cycle.reclaimable_cache.setdefault(account, {})
    kind = policy.kind, tuple(policy.kinds), policy.gang.workload.priority, policy.spares_fresh
    result = cache.get(kind)
    if not isinstance(result, _Sum) or policy.gang.account is account:
        result = _Sum()
        for gang in selection.board.by_project[account].values():
            if (gang.may_grow or policy.takes_gangs) and policy.would_take_from(gang):
                _add(result, gang, selection)
        if result.total == [
            account.allocated[k] - account.non_preemptible[k] if k in policy.kinds else 0 for k in KINDS
        ]:
            cache[kind] = result
        return result
    left = [account.allocated[k] - account.non_preemptible[k] if k in policy.kinds else 0 for k in KINDS]
    return replace(result, total=left)


def _both(one: _Sum, other: _Sum) -> _Sum:
    def added(kind: int) -> tuple[int, int, int, int, int]:
        return (
            one.total[kind] + other.total[kind],
            one.guarded[kind] + other.guarded[kind],
            one.non_preemptible[kind] + other.non_preemptible[kind],
            max(one.biggest[kind], other.biggest[kind]),
            gcd(one.grain[kind], other.grain[kind]),
        )

    total, guarded, non_preemptible, biggest, grain = zip(*map(added, KINDS), strict=True)
    return _Sum(list(total), list(guarded), list(non_preemptible), list(biggest), list(grain))


def _add(result: _Sum, gang: Gang, selection: VictimSelection) -> None:
    policy = selection.policy
    for kind in policy.kinds:
        held = spare = 0
        for part in gang.parts:
            amount = part.amounts[kind]
            if amount:
                live = len(part.live)
                held += amount * live
                if gang.may_grow:
                    spare += amount * max(0, min(part.count - part.role.min, live))
                if result.grain[kind] != amount:
                    result.grain[kind] = gcd(result.grain[kind], amount)
        if gang.non_preemptible:
            result.non_preemptible[kind] += held if policy.takes_gangs else 0
            continue
        reclaimable = (
            held if not gang.simple or (policy.takes_gangs and not selection.is_protected(gang)) else spare
        )
        result.total[kind] += reclaimable
        if reclaimable < held and policy.takes_gangs and policy.is_protected(gang):
            result.guarded[kind] += held - reclaimable
        result.biggest[kind] = max(result.biggest[kind], reclaimable)


def _most(policy: PreemptionPolicy, side: QueueAccount, kind: int, result: _Sum) -> int:
    """Return the amount that may be reclaimed. The side must exceed its threshold before the last victim."""
    threshold = policy.threshold(side, kind)
    grain = result.grain[kind]
    if threshold is None or not grain:
        return result.total[kind]
    room = side.allocated[kind] - threshold + result.biggest[kind] - 1
    return max(0, min(result.total[kind], room // grain * grain))
