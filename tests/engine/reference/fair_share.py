"""A simple and slow reference for fair shares.

It uses exact fractions and no engine code, and covers one resource on one level. The caller walks through the
levels.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial

WeightFunction = Callable[[Sequence["Claimant"]], list[Fraction]]


@dataclass(frozen=True)
class Claimant:
    """A queue that competes with its siblings for the parent's resources. None means unlimited."""

    name: str
    quota: int | None
    wants: int  # allocated plus requested, capped by the queue's own limits
    weight: Fraction = Fraction(1)
    rank: int = 0
    created: int = 0
    usage: Fraction = Fraction(0)


def fair_shares(
    total: int,
    claimants: Sequence[Claimant],
    *,
    unit: int = 1,
    k: Fraction = Fraction(0),
    by_quota: bool = False,
) -> dict[str, int]:
    """Return the fair share of each queue. With `by_quota`, quotas replace weights."""
    share = {claimant.name: 0 for claimant in claimants}
    left = total
    for rank in _ranks(claimants):
        wanted = {c.name: c.wants if c.quota is None else min(c.quota, c.wants) for c in rank}
        division = Division(left, unit, wanted, share)
        left = _divide_rounds(division, rank, partial(_quotas, total=total))
    for rank in _ranks(claimants):
        weights = {c.name: _quotas([c], total)[0] if by_quota else c.weight for c in rank}
        served = [c for c in rank if weights[c.name] > 0]
        wanted = {c.name: c.wants for c in served}
        left = _divide_rounds(
            Division(left, unit, wanted, share), served, partial(_adjusted_weights, weights=weights, k=k)
        )
    return share


def _ranks(claimants: Sequence[Claimant]) -> list[list[Claimant]]:
    return [
        [c for c in claimants if c.rank == rank] for rank in sorted({c.rank for c in claimants}, reverse=True)
    ]


def _quotas(claimants: Sequence[Claimant], total: int) -> list[Fraction]:
    return [Fraction(total if c.quota is None else c.quota) for c in claimants]


def _adjusted_weights(
    hungry: Sequence[Claimant], weights: dict[str, Fraction], k: Fraction
) -> list[Fraction]:
    """Return max(0, n + K(n - u)) per claimant, where n is its fraction of all weights and u its usage."""
    everything = sum((weights[c.name] for c in hungry), Fraction(0))
    n = [weights[c.name] / everything for c in hungry]
    w = [max(Fraction(0), part + k * (part - c.usage)) for part, c in zip(n, hungry, strict=True)]
    return w if any(w) else n


@dataclass
class Division:
    left: int
    unit: int
    wanted: dict[str, int]
    share: dict[str, int]

    def lacks(self, claimant: Claimant) -> int:
        return self.wanted[claimant.name] - self.share[claimant.name]

    def give(self, claimant: Claimant, amount: int) -> None:
        self.share[claimant.name] += amount
        self.left -= amount


def _divide_rounds(division: Division, claimants: Sequence[Claimant], weigh: WeightFunction) -> int:
    """Divide the resource round by round and return the remainder."""
    while division.left > 0:
        hungry = [c for c in claimants if division.lacks(c) > 0]
        weights = weigh(hungry) if hungry else []
        if not any(weights):
            break
        offers = {
            c.name: division.left * weight / sum(weights) for c, weight in zip(hungry, weights, strict=True)
        }
        content = [c for c in hungry if division.lacks(c) <= offers[c.name]]
        if not content:
            _whole_units(division, hungry, offers)
            break
        for c in content:
            division.give(c, division.lacks(c))
    return division.left


def _whole_units(division: Division, hungry: Sequence[Claimant], offers: dict[str, Fraction]) -> None:
    """Grant the whole units of each offer, then single units by largest remainder, oldest queue and name."""
    unit = division.unit
    for c in hungry:
        division.give(c, int(offers[c.name] // unit) * unit)
    order = sorted(hungry, key=lambda c: (-(offers[c.name] % unit), c.created, c.name))
    while division.left > 0 and any(division.lacks(c) > 0 for c in order):
        for c in order:
            division.give(c, min(unit, division.left, division.lacks(c)))
