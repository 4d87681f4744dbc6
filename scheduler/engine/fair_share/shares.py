"""Divide a pool's capacity into fair shares: first by quota, then by rank and weight."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from itertools import groupby
from math import lcm

from berth.core.values.amounts import MILLI, RESOURCES
from scheduler.engine.board.ledger import KINDS, NO_BOUND, Ledger, QueueAccount
from scheduler.engine.fair_share.trace import Division, DivisionLog, Offer, QueueInput
from scheduler.engine.model import Pool

UNITS = (MILLI, 1, 1)  # shares are rounded to whole GPUs, milli-CPUs and MiB
_USAGE_SCALE = 10**9  # measured usage is a float, and is rounded to this precision for exact arithmetic


@dataclass(slots=True)
class Claim:
    """A queue's claim to its parent's share of one resource."""

    account: QueueAccount
    quota: int
    wanted: int
    weight: Fraction
    usage: Fraction
    granted: int = 0
    rounded_up: int = 0  # part of `granted` that results from rounding up
    rounded_off: int = 0  # amount that rounding up once more would add to `granted`

    @property
    def age_key(self) -> tuple[int, str]:
        return self.account.created, self.account.name


WeightFunction = Callable[[Sequence[Claim]], Sequence[Fraction]]
NeedFunction = Callable[[Claim], int]


def update_shares(
    pool: Pool, ledger: Ledger, capacity: Sequence[int], recorded: list[Division] | None = None
) -> None:
    """Set the fair share of every queue, departments first.

    A record of each division is added to `recorded`.
    """
    for account in ledger.accounts.values():
        now, more = account.allocated, account.pending_request
        account.requested = [now[0] + more[0], now[1] + more[1], now[2] + more[2]]
    divide_shares(pool, ledger, capacity, recorded)


def divide_shares(
    pool: Pool, ledger: Ledger, capacity: Sequence[int], recorded: list[Division] | None = None
) -> None:
    """Divide the pool's capacity among its queues according to their current requests."""
    for account in reversed(ledger.accounts.values()):  # handle projects before their departments
        account.wanted = _request_within_limits(account)
    _divide_children(ledger, ledger.roots, capacity, pool, recorded)


def _divide_children(
    ledger: Ledger,
    accounts: Sequence[QueueAccount],
    total: Sequence[int],
    pool: Pool,
    recorded: list[Division] | None,
) -> None:
    if not accounts:
        return
    parent = accounts[0].parent
    current_inputs = tuple(total), [(a.pool_quota, *a.wanted) for a in accounts]
    # With unchanged inputs, the last result is still valid.
    if recorded is not None or ledger.division_inputs.get(parent) != current_inputs:
        ledger.division_inputs[parent] = current_inputs
        _divide_among(accounts, total, pool, recorded)
    for account in accounts:
        _divide_children(ledger, account.children, account.share, pool, recorded)


def _divide_among(
    accounts: Sequence[QueueAccount], total: Sequence[int], pool: Pool, recorded: list[Division] | None
) -> None:
    shares = {account.name: [0, 0, 0] for account in accounts}
    cuts = {account.name: [0, 0, 0] for account in accounts}
    for kind in KINDS:
        if recorded is None and sum([account.wanted[kind] for account in accounts]) <= total[kind]:
            for account in accounts:
                shares[account.name][kind] = _uncontended_share(account, kind, pool)
            continue
        notes = None if recorded is None else DivisionLog()
        claims = divide(
            total[kind],
            UNITS[kind],
            _build_claims(accounts, kind, total[kind], pool),
            _history_factor(pool),
            notes,
        )
        if recorded is not None and notes is not None:
            recorded.append(_division(claims, kind, total[kind], pool, notes))
        for claim in claims:
            shares[claim.account.name][kind] = claim.granted
            cuts[claim.account.name][kind] = claim.rounded_off
    for account in accounts:
        account.set_share(shares[account.name], cuts[account.name])


def shares_without_history(
    pool: Pool, accounts: Sequence[QueueAccount], kind: int, total: int
) -> dict[QueueAccount, int]:
    """Return the share of a resource, in whole units, that each account would have if all had the
    same usage.
    """
    claims = divide(total, UNITS[kind], _build_claims(accounts, kind, total, pool))
    return {claim.account: claim.granted + claim.rounded_off for claim in claims}


def _uncontended_share(account: QueueAccount, kind: int, pool: Pool) -> int:
    """Return the share that the queue would have if there were capacity for all requests."""
    quota, wanted = account.quota[kind], account.wanted[kind]
    weight = account.pool_quota.weights[kind] if pool.over_quota_weights else quota
    return wanted if weight > 0 else min(quota, wanted)


def _division(claims: Sequence[Claim], kind: int, total: int, pool: Pool, notes: DivisionLog) -> Division:
    parent = claims[0].account.parent
    return Division(
        parent=None if parent is None else parent.name,
        resource=RESOURCES[kind],
        total=total,
        unit=UNITS[kind],
        k=_history_factor(pool),
        by_quota=not pool.over_quota_weights,
        inputs=tuple(_queue_input(claim, kind) for claim in claims),
        rounds=tuple(notes.rounds),
    )


def _queue_input(claim: Claim, kind: int) -> QueueInput:
    account = claim.account
    return QueueInput(
        queue=account.name,
        rank=account.rank,
        created=account.created,
        quota=account.pool_quota.quota[kind],
        limit=account.pool_quota.limit[kind],
        over_quota=account.pool_quota.over_quota,
        weight=claim.weight,
        usage=claim.usage,
        requested=account.requested[kind],
        wanted=claim.wanted,
        share=claim.granted,
        group=account.pool_quota.group,
    )


def _request_within_limits(account: QueueAccount) -> list[int]:
    requested = account.requested
    if account.children:
        requested = list(map(sum, zip(*[child.wanted for child in account.children], strict=True)))
    return list(map(min, account.limit, requested))


def _history_factor(pool: Pool) -> Fraction:
    return to_exact_fraction(pool.fair_share.k) if pool.fair_share.time_based else Fraction(0)


@cache
def to_exact_fraction(number: float) -> Fraction:
    """Convert a float to the exact fraction of its decimal representation: 0.1 becomes 1/10."""
    return Fraction(repr(number))


def _build_claims(accounts: Sequence[QueueAccount], kind: int, total: int, pool: Pool) -> list[Claim]:
    claims = []
    for account in accounts:
        quota = account.quota[kind]
        weight = to_exact_fraction(account.pool_quota.weights[kind])
        if not pool.over_quota_weights:
            weight = Fraction(total if quota >= NO_BOUND else quota)
        usage = Fraction(0)
        if pool.fair_share.time_based:
            usage = Fraction(
                round(account.pool_quota.usage.fraction_of_parent(kind) * _USAGE_SCALE), _USAGE_SCALE
            )
        claims.append(Claim(account, quota, account.wanted[kind], weight, usage))
    return claims


def divide(
    total: int,
    unit: int,
    claims: Sequence[Claim],
    k: Fraction = Fraction(0),
    notes: DivisionLog | None = None,
) -> Sequence[Claim]:
    """Set `granted` on each claim, and return the claims. Together, they are granted at most `total`."""
    left = total
    ranked = sorted(claims, key=lambda claim: (-claim.account.rank, claim.age_key))
    ranks = [list(rank_claims) for _, rank_claims in groupby(ranked, key=lambda claim: claim.account.rank)]
    for rank_claims in ranks:
        _record_phase(notes, "quota", rank_claims)
        within = [min(claim.quota, claim.wanted) for claim in rank_claims]
        left -= _distribute(left, unit, rank_claims, within, _quota_weights(total), notes)
    for rank_claims in ranks:
        _record_phase(notes, "over_quota", rank_claims)
        weighted = [claim for claim in rank_claims if claim.weight > 0]
        left -= _distribute(
            left, unit, weighted, [claim.wanted for claim in weighted], _history_weights(k), notes
        )
    return claims


def _record_phase(notes: DivisionLog | None, phase: str, rank_claims: Sequence[Claim]) -> None:
    if notes is not None:
        notes.phase, notes.rank = phase, rank_claims[0].account.rank


def _quota_weights(total: int) -> WeightFunction:
    """Return a function that computes weights from quotas. `total` replaces an unlimited quota."""
    return lambda claims: [Fraction(total if claim.quota >= NO_BOUND else claim.quota) for claim in claims]


def _history_weights(k: Fraction) -> WeightFunction:
    """Return a function that computes weights adjusted for past usage.

    Queues whose decayed usage exceeds their part of the total get lower weights. The others get higher
    weights.
    """

    def weight_function(claims: Sequence[Claim]) -> Sequence[Fraction]:
        weights = [claim.weight for claim in claims]
        if not k:
            return weights
        total_weight = sum(weights)
        parts = [weight / total_weight for weight in weights]
        adjusted = [
            max(Fraction(0), n + k * (n - claim.usage)) for n, claim in zip(parts, claims, strict=True)
        ]
        return adjusted if any(adjusted) else parts

    return weight_function


def _distribute(
    left: int,
    unit: int,
    claims: Sequence[Claim],
    targets: Sequence[int],
    weight_function: WeightFunction,
    notes: DivisionLog | None,
) -> int:
    """Distribute the amount `left` among the claims in proportion to their weights.

    Return the amount granted.
    """
    if left <= 0 and notes is None:
        return 0
    target = {claim.account.name: goal for claim, goal in zip(claims, targets, strict=True)}

    def unmet_need(claim: Claim) -> int:
        return target[claim.account.name] - claim.granted

    start = left
    unmet = [claim for claim in claims if unmet_need(claim) > 0]
    if notes is None and sum(map(unmet_need, unmet)) <= left:  # fast path: every claim can be met
        for claim in unmet:
            left -= unmet_need(claim)
            claim.granted += unmet_need(claim)
        return start - left
    while left > 0 and unmet:
        weights = _to_integers(weight_function(unmet))
        total_weight = sum(weights)
        full = [
            c
            for c, weight in zip(unmet, weights, strict=True)
            if unmet_need(c) * total_weight <= left * weight
        ]
        offers = [] if notes is None else _build_offers(left, unmet, weights, unmet_need, notes.phase)
        if not full:
            left -= _round_down(left, unit, unmet, weights, unmet_need, notes, offers)
            break
        if notes is not None:
            filled = {claim.account.name for claim in full}
            notes.record_round(
                left, [replace(o, granted=o.needed if o.queue in filled else 0) for o in offers]
            )
        for claim in full:
            left -= unmet_need(claim)
            claim.granted += unmet_need(claim)
        unmet = [claim for claim in unmet if unmet_need(claim) > 0]
    return start - left


def _build_offers(
    left: int, unmet: Sequence[Claim], weights: Sequence[int], need: NeedFunction, phase: str
) -> list[Offer]:
    total_weight = sum(weights)
    plain = weights if phase == "quota" else _to_integers([claim.weight for claim in unmet])
    return [
        Offer(
            queue=claim.account.name,
            needed=need(claim),
            part=Fraction(weight, total_weight),
            plain=Fraction(alone, sum(plain)),
            offered=Fraction(left * weight, total_weight),
            granted=0,
        )
        for claim, weight, alone in zip(unmet, weights, plain, strict=True)
    ]


def _round_down(
    left: int,
    unit: int,
    unmet: Sequence[Claim],
    weights: Sequence[int],
    need: NeedFunction,
    notes: DivisionLog | None,
    offers: Sequence[Offer],
) -> int:
    """Grant each claim its proportional part, rounded down, then single units by largest remainder.

    Must be called only if no claim's part would meet the claim in full. Return the amount granted.
    """
    start, total_weight = left, sum(weights)
    remainders: list[tuple[int, int, str, Claim]] = []
    offered = left
    for claim, weight in zip(unmet, weights, strict=True):
        units, remainder = divmod(offered * weight, total_weight * unit)
        claim.granted += units * unit
        left -= units * unit
        claim.rounded_off = min(unit, need(claim)) if remainder else 0
        remainders.append((-remainder, *claim.age_key, claim))
    remainders.sort(key=lambda entry: entry[:3])
    whole, rounded = left, {claim.account.name: claim.rounded_up for claim in unmet}
    while left > 0 and any(need(claim) > 0 for *_, claim in remainders):
        for *_, claim in remainders:
            more = min(unit, left, need(claim))
            claim.granted += more
            claim.rounded_up += more
            claim.rounded_off -= min(more, claim.rounded_off)
            left -= more
    if notes is not None:
        down = {offer.queue: replace(offer, granted=int(offer.offered) // unit * unit) for offer in offers}
        notes.record_round(start, list(down.values()))
        if whole:
            names = [claim for *_, claim in remainders]
            notes.record_remainders(
                whole,
                [
                    _remainder_offer(down[c.account.name], c.rounded_up - rounded[c.account.name])
                    for c in names
                ],
            )
    return start - left


def _remainder_offer(offer: Offer, granted: int) -> Offer:
    return replace(
        offer, needed=offer.needed - offer.granted, offered=offer.offered - offer.granted, granted=granted
    )


def _to_integers(weights: Sequence[Fraction]) -> list[int]:
    scale = lcm(*(weight.denominator for weight in weights)) if weights else 1
    return [int(weight * scale) for weight in weights]
