"""Divide a pool's capacity: quotas first, then the rest by rank and weight."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from itertools import groupby
from math import lcm

from berth.core.amounts import MILLI, RESOURCES
from scheduler.engine.board.ledger import KINDS, NO_BOUND, Ledger, QueueAccount
from scheduler.engine.fair_share.trace import Division, DivisionLog, Offer, QueueInput
from scheduler.engine.model import Pool

UNITS = (MILLI, 1, 1)  # shares are rounded to whole GPUs, milli-CPUs and MiB
_GRAIN = 10**9  # measured usage is a float: it is rounded to this precision and exact from then on


@dataclass(slots=True)
class Claim:
    """One queue's claim on one resource of its parent's share."""

    account: QueueAccount
    quota: int
    wanted: int
    weight: Fraction
    usage: Fraction
    granted: int = 0
    rounded_up: int = 0  # part of `granted` that comes from rounding up
    cut: int = 0  # additional grant if every fraction were rounded up

    @property
    def age(self) -> tuple[int, str]:
        return self.account.created, self.account.name


Weigh = Callable[[Sequence[Claim]], Sequence[Fraction]]
Need = Callable[[Claim], int]


def update_shares(
    pool: Pool, ledger: Ledger, capacity: Sequence[int], story: list[Division] | None = None
) -> None:
    """Set the fair share of every queue from the top down. `story` collects the divisions."""
    for account in ledger.accounts.values():
        held, more = account.allocated, account.pending_request
        account.requested = [held[0] + more[0], held[1] + more[1], held[2] + more[2]]
    divide_shares(pool, ledger, capacity, story)


def divide_shares(
    pool: Pool, ledger: Ledger, capacity: Sequence[int], story: list[Division] | None = None
) -> None:
    """Divide the pool's capacity among its queues by their current requests."""
    for account in reversed(ledger.accounts.values()):  # projects before their departments
        account.wanted = _wanted(account)
    _divide_below(ledger, ledger.roots, capacity, pool, story)


def _divide_below(
    ledger: Ledger,
    accounts: Sequence[QueueAccount],
    total: Sequence[int],
    pool: Pool,
    story: list[Division] | None,
) -> None:
    if not accounts:
        return
    parent = accounts[0].parent
    outset = tuple(total), [(a.entitlement, *a.wanted) for a in accounts]
    if story is not None or ledger.divided.get(parent) != outset:  # otherwise the last result still holds
        ledger.divided[parent] = outset
        _divide_among(accounts, total, pool, story)
    for account in accounts:
        _divide_below(ledger, account.children, account.share, pool, story)


def _divide_among(
    accounts: Sequence[QueueAccount], total: Sequence[int], pool: Pool, story: list[Division] | None
) -> None:
    shares = {account.name: [0, 0, 0] for account in accounts}
    cuts = {account.name: [0, 0, 0] for account in accounts}
    for kind in KINDS:
        if story is None and sum([account.wanted[kind] for account in accounts]) <= total[kind]:
            for account in accounts:
                shares[account.name][kind] = _uncontended_share(account, kind, pool)
            continue
        notes = None if story is None else DivisionLog()
        claims = divide(total[kind], UNITS[kind], _claims(accounts, kind, total[kind], pool), _k(pool), notes)
        if story is not None and notes is not None:
            story.append(_division(claims, kind, total[kind], pool, notes))
        for claim in claims:
            shares[claim.account.name][kind] = claim.granted
            cuts[claim.account.name][kind] = claim.cut
    for account in accounts:
        account.set_share(shares[account.name], cuts[account.name])


def _uncontended_share(account: QueueAccount, kind: int, pool: Pool) -> int:
    """Return the queue's share where capacity suffices for all. With weight 0, the quota limits the share."""
    quota, wanted = account.quota[kind], account.wanted[kind]
    weight = account.entitlement.weights[kind] if pool.over_quota_weights else quota
    return wanted if weight > 0 else min(quota, wanted)


def _division(claims: Sequence[Claim], kind: int, total: int, pool: Pool, notes: DivisionLog) -> Division:
    parent = claims[0].account.parent
    return Division(
        parent=None if parent is None else parent.name,
        resource=RESOURCES[kind],
        total=total,
        unit=UNITS[kind],
        k=_k(pool),
        by_quota=not pool.over_quota_weights,
        inputs=tuple(_input(claim, kind) for claim in claims),
        rounds=tuple(notes.rounds),
    )


def _input(claim: Claim, kind: int) -> QueueInput:
    account = claim.account
    return QueueInput(
        queue=account.name,
        rank=account.rank,
        created=account.created,
        quota=account.entitlement.quota[kind],
        limit=account.entitlement.limit[kind],
        over_quota=account.entitlement.over_quota,
        weight=claim.weight,
        usage=claim.usage,
        requested=account.requested[kind],
        wanted=claim.wanted,
        share=claim.granted,
    )


def _wanted(account: QueueAccount) -> list[int]:
    """Return the amounts that the queue can use: its requests within its own limits and those below it."""
    requested = account.requested
    if account.children:
        requested = list(map(sum, zip(*[child.wanted for child in account.children], strict=True)))
    return list(map(min, account.limit, requested))


def _k(pool: Pool) -> Fraction:
    return exact(pool.fair_share.k) if pool.fair_share.time_based else Fraction(0)


@cache
def exact(number: float) -> Fraction:
    """Return the exact decimal value of a float: 0.1 is a tenth."""
    return Fraction(repr(number))


def _claims(accounts: Sequence[QueueAccount], kind: int, total: int, pool: Pool) -> list[Claim]:
    claims = []
    for account in accounts:
        quota = account.quota[kind]
        weight = exact(account.entitlement.weights[kind])
        if not pool.over_quota_weights:
            weight = Fraction(total if quota >= NO_BOUND else quota)
        usage = Fraction(0)
        if pool.fair_share.time_based:
            usage = Fraction(round(account.entitlement.usage.normalised(kind) * _GRAIN), _GRAIN)
        claims.append(Claim(account, quota, account.wanted[kind], weight, usage))
    return claims


def divide(
    total: int,
    unit: int,
    claims: Sequence[Claim],
    k: Fraction = Fraction(0),
    notes: DivisionLog | None = None,
) -> Sequence[Claim]:
    """Set `granted` in each claim. The sum never exceeds the total."""
    left = total
    ranked = sorted(claims, key=lambda claim: (-claim.account.rank, claim.age))
    ranks = [list(same) for _, same in groupby(ranked, key=lambda claim: claim.account.rank)]
    for same in ranks:
        _set_phase(notes, "quota", same)
        within = [min(claim.quota, claim.wanted) for claim in same]
        left -= _fill(left, unit, same, within, _by_quota(total), notes)
    for same in ranks:
        _set_phase(notes, "over_quota", same)
        weighty = [claim for claim in same if claim.weight > 0]
        left -= _fill(left, unit, weighty, [claim.wanted for claim in weighty], _by_weight(k), notes)
    return claims


def _set_phase(notes: DivisionLog | None, phase: str, same: Sequence[Claim]) -> None:
    if notes is not None:
        notes.phase, notes.rank = phase, same[0].account.rank


def _by_quota(total: int) -> Weigh:
    """Weigh claims by quota. An unlimited quota weighs as much as the total."""
    return lambda claims: [Fraction(total if claim.quota >= NO_BOUND else claim.quota) for claim in claims]


def _by_weight(k: Fraction) -> Weigh:
    """Weigh claims by weight, adjusted for history: usage above a queue's part (u > n) lowers its weight."""

    def weigh(claims: Sequence[Claim]) -> Sequence[Fraction]:
        weights = [claim.weight for claim in claims]
        if not k:
            return weights
        everything = sum(weights)
        parts = [weight / everything for weight in weights]
        pushed = [max(Fraction(0), n + k * (n - claim.usage)) for n, claim in zip(parts, claims, strict=True)]
        return pushed if any(pushed) else parts

    return weigh


def _fill(
    left: int,
    unit: int,
    claims: Sequence[Claim],
    upto: Sequence[int],
    weigh: Weigh,
    notes: DivisionLog | None,
) -> int:
    """Offer the rest in proportion to weight until it is used up or all needs are met. Return the grants."""
    if left <= 0 and notes is None:
        return 0
    target = {claim.account.name: goal for claim, goal in zip(claims, upto, strict=True)}

    def need(claim: Claim) -> int:
        return target[claim.account.name] - claim.granted

    start = left
    hungry = [claim for claim in claims if need(claim) > 0]
    if notes is None and sum(map(need, hungry)) <= left:  # every claim can be met
        for claim in hungry:
            left -= need(claim)
            claim.granted += need(claim)
        return start - left
    while left > 0 and hungry:
        weights = _whole_numbers(weigh(hungry))
        everything = sum(weights)
        full = [c for c, weight in zip(hungry, weights, strict=True) if need(c) * everything <= left * weight]
        offers = [] if notes is None else _offers(left, hungry, weights, need, notes.phase)
        if not full:
            left -= _round_down(left, unit, hungry, weights, need, notes, offers)
            break
        if notes is not None:
            filled = {claim.account.name for claim in full}
            notes.offered(left, [replace(o, granted=o.needed if o.queue in filled else 0) for o in offers])
        for claim in full:
            left -= need(claim)
            claim.granted += need(claim)
        hungry = [claim for claim in hungry if need(claim) > 0]
    return start - left


def _offers(
    left: int, hungry: Sequence[Claim], weights: Sequence[int], need: Need, phase: str
) -> list[Offer]:
    """Return the offers of a round before anything is granted."""
    everything = sum(weights)
    plain = weights if phase == "quota" else _whole_numbers([claim.weight for claim in hungry])
    return [
        Offer(
            queue=claim.account.name,
            needed=need(claim),
            part=Fraction(weight, everything),
            plain=Fraction(alone, sum(plain)),
            offered=Fraction(left * weight, everything),
            granted=0,
        )
        for claim, weight, alone in zip(hungry, weights, plain, strict=True)
    ]


def _round_down(
    left: int,
    unit: int,
    hungry: Sequence[Claim],
    weights: Sequence[int],
    need: Need,
    notes: DivisionLog | None,
    offers: Sequence[Offer],
) -> int:
    """Grant the whole units of each offer, then one unit each by largest remainder.

    Called when no claim can be met in full. Return the sum of the grants.
    """
    start, everything = left, sum(weights)
    remainders: list[tuple[int, int, str, Claim]] = []
    offered = left
    for claim, weight in zip(hungry, weights, strict=True):
        units, remainder = divmod(offered * weight, everything * unit)
        claim.granted += units * unit
        left -= units * unit
        claim.cut = min(unit, need(claim)) if remainder else 0
        remainders.append((-remainder, *claim.age, claim))
    remainders.sort(key=lambda entry: entry[:3])
    whole, rounded = left, {claim.account.name: claim.rounded_up for claim in hungry}
    while left > 0 and any(need(claim) > 0 for *_, claim in remainders):
        for *_, claim in remainders:
            more = min(unit, left, need(claim))
            claim.granted += more
            claim.rounded_up += more
            claim.cut -= min(more, claim.cut)
            left -= more
    if notes is not None:
        down = {offer.queue: replace(offer, granted=int(offer.offered) // unit * unit) for offer in offers}
        notes.offered(start, list(down.values()))
        if whole:
            names = [claim for *_, claim in remainders]
            notes.rounded(
                whole,
                [
                    _remainder_offer(down[c.account.name], c.rounded_up - rounded[c.account.name])
                    for c in names
                ],
            )
    return start - left


def _remainder_offer(offer: Offer, granted: int) -> Offer:
    """Return the fraction that was cut from an offer, with the amount granted for that fraction."""
    return replace(
        offer, needed=offer.needed - offer.granted, offered=offer.offered - offer.granted, granted=granted
    )


def _whole_numbers(weights: Sequence[Fraction]) -> list[int]:
    scale = lcm(*(weight.denominator for weight in weights)) if weights else 1
    return [int(weight * scale) for weight in weights]
