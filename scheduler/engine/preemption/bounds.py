"""Upper bounds on what evictions could free, from sums only."""

from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import gcd
from typing import Any

from berth.core.amounts import RESOURCES
from scheduler.engine.board.gang import Gang
from scheduler.engine.board.ledger import KINDS, Account
from scheduler.engine.plan import Numbers, Reason
from scheduler.engine.preemption.policy import Law
from scheduler.engine.preemption.selection import Taker

Asked = tuple[int, int, int]


@dataclass(slots=True)
class _Sum:
    """What one side could give, per resource."""

    total: list[int] = field(default_factory=lambda: [0, 0, 0])
    guarded: list[int] = field(default_factory=lambda: [0, 0, 0])  # could give but for its minimum runtime
    firm: list[int] = field(default_factory=lambda: [0, 0, 0])  # could give but is non-preemptible
    biggest: list[int] = field(default_factory=lambda: [0, 0, 0])  # lump
    grain: list[int] = field(default_factory=lambda: [0, 0, 0])  # every lump is a multiple of it


def reach(taker: Taker) -> tuple[Reason, Numbers] | None:
    """Why it would not do even then, with the numbers; None: it might."""
    return _short(_sums(taker), taker.law.asked)


@lru_cache(maxsize=256)
def nothing_but(free: tuple[int, int, int], asked: Asked) -> tuple[Reason, Numbers] | None:
    """The same where there is nobody to take from."""
    return _short(_Sums(free), asked)


def _short(sums: "_Sums", asked: Asked) -> tuple[Reason, Numbers] | None:
    for kind in KINDS:
        if asked[kind] > sums.free[kind] + sums.takeable[kind]:
            numbers = sums.numbers(asked, kind)
            enough = numbers["protected"] >= numbers["missing"]
            return Reason.VICTIMS_PROTECTED if enough else Reason.NO_RECLAIMABLE_RESOURCES, numbers
    return None


def in_sum(taker: Taker, resource: object) -> Numbers:
    """The numbers where it would do in sum: of this resource where the policy takes it, or of its first."""
    kinds = taker.law.kinds
    kind = next((kind for kind in kinds if RESOURCES[kind] == resource), next(iter(kinds), 0))
    return {**_sums(taker).numbers(taker.law.asked, kind), "missing": 0}


def biggest(taker: Taker, kind: int) -> int:
    """The most of a resource that one gang could give, or more."""
    return max((found.biggest[kind] for found in _sides(taker).values()), default=0)


@dataclass(frozen=True, slots=True)
class _Sums:
    """Over all sides: what is free, could be taken, and is held back."""

    free: tuple[int, int, int]
    takeable: list[int] = field(default_factory=lambda: [0, 0, 0])
    guarded: list[int] = field(default_factory=lambda: [0, 0, 0])
    firm: list[int] = field(default_factory=lambda: [0, 0, 0])

    def numbers(self, asked: Asked, kind: int) -> dict[str, Any]:
        return {
            "resource": RESOURCES[kind],
            "requested": asked[kind],
            "free": self.free[kind],
            "reclaimable": self.takeable[kind],
            "missing": asked[kind] - self.free[kind] - self.takeable[kind],
            "protected": self.guarded[kind] + self.firm[kind],
            "by_runtime": self.guarded[kind],
            "non_preemptible": self.firm[kind],
        }


def _sums(taker: Taker) -> _Sums:
    law, sums = taker.law, _Sums(taker.board.nodes.free())
    if not law.moves_only:
        for side, found in _sides(taker).items():
            for kind in law.kinds:
                sums.takeable[kind] += _most(law, side, kind, found)
                sums.guarded[kind] += found.guarded[kind]
                sums.firm[kind] += found.firm[kind]
    return sums


def _sides(taker: Taker) -> dict[Account, _Sum]:
    law = taker.law
    sides: dict[Account, _Sum] = {}
    for account in law.projects():
        parting = law.parting(account)
        side = parting[1] if parting else account
        found = _of_project(taker, account)
        sides[side] = _both(sides[side], found) if side in sides else found
    return sides


def _of_project(taker: Taker, account: Account) -> _Sum:
    """Counted once: as long as nobody comes, all that is left may still go where all could."""
    law, known = taker.law, taker.board.givable.setdefault(account, {})
    kind = law.kind, tuple(law.kinds), law.gang.workload.priority, law.spares_fresh
    found = known.get(kind)
    if not isinstance(found, _Sum) or law.gang.account is account:
        found = _Sum()
        for gang in taker.board.by_project[account].values():
            if (gang.may_grow or law.takes_gangs) and law.would_take_from(gang):
                _add(found, gang, taker)
        if found.total == [account.allocated[k] - account.firm[k] if k in law.kinds else 0 for k in KINDS]:
            known[kind] = found
        return found
    left = [account.allocated[k] - account.firm[k] if k in law.kinds else 0 for k in KINDS]
    return replace(found, total=left)


def _both(one: _Sum, other: _Sum) -> _Sum:
    def added(kind: int) -> tuple[int, int, int, int, int]:
        return (
            one.total[kind] + other.total[kind],
            one.guarded[kind] + other.guarded[kind],
            one.firm[kind] + other.firm[kind],
            max(one.biggest[kind], other.biggest[kind]),
            gcd(one.grain[kind], other.grain[kind]),
        )

    total, guarded, firm, biggest, grain = zip(*map(added, KINDS), strict=True)
    return _Sum(list(total), list(guarded), list(firm), list(biggest), list(grain))


def _add(found: _Sum, gang: Gang, taker: Taker) -> None:
    law = taker.law
    for kind in law.kinds:
        held = spare = 0
        for part in gang.parts:
            amount = part.amounts[kind]
            if amount:
                live = len(part.live)
                held += amount * live
                if gang.may_grow:
                    spare += amount * max(0, min(part.count - part.role.min, live))
                if found.grain[kind] != amount:
                    found.grain[kind] = gcd(found.grain[kind], amount)
        if gang.firm:
            found.firm[kind] += held if law.takes_gangs else 0
            continue
        given = held if not gang.simple or (law.takes_gangs and not taker.is_safe(gang)) else spare
        found.total[kind] += given
        if given < held and law.takes_gangs and law.is_safe(gang):
            found.guarded[kind] += held - given
        found.biggest[kind] = max(found.biggest[kind], given)


def _most(law: Law, side: Account, kind: int, found: _Sum) -> int:
    """All of it, or as much as leaves the side above its threshold before the last lump."""
    threshold = law.threshold(side, kind)
    grain = found.grain[kind]
    if threshold is None or not grain:
        return found.total[kind]
    room = side.allocated[kind] - threshold + found.biggest[kind] - 1
    return max(0, min(found.total[kind], room // grain * grain))
