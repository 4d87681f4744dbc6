"""Decayed usage of queues, integrated exactly at every change.

Between two changes everything is constant, so nothing is sampled: a burst is charged for to the second.
`used` grows by what is charged (beyond quota, or all, as the pool says), `parent` by what the parent held
as its share. Both fade with the pool's half-life, or start anew with each window where it tumbles; what a
sliding window has left behind is taken off again (see `window`).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from pools.models import NodePool
from scheduler.engine.model import Usage as Decayed
from scheduler.models import Usage, UsagePoint
from scheduler.reports.usage.window import WindowStart, is_sliding, window_start

HALF_LIFE = 7 * 86_400
KINDS = range(3)
SETTLE_AFTER = timedelta(minutes=5)

Triple = tuple[float, float, float]


@dataclass(frozen=True, slots=True)
class Rates:
    """What a queue holds, what of it is charged, and what its parent holds as its share (per second)."""

    held: tuple[int, int, int] = (0, 0, 0)
    charged: Triple = (0.0, 0.0, 0.0)
    parent: Triple = (0.0, 0.0, 0.0)


def integral(value: float, rate: float, seconds: float, half_life: float | None) -> float:
    """`value` after `seconds` at a constant `rate`; without a half-life nothing fades."""
    if half_life is None:
        return value + rate * seconds
    left = 2.0 ** (-seconds / half_life)
    return value * left + rate * (1.0 - left) * half_life / math.log(2)


def decayed(row: Usage, pool: NodePool, now: datetime, then: WindowStart | None = None) -> Decayed:
    """The ledger of one queue as it stands at `now`, whenever it was last settled."""
    used, parent = _advanced(row, pool, now)
    if is_sliding(pool):
        begin = window_start(pool, now)
        faded = integral(1.0, 0.0, (now - begin).total_seconds(), _half_life(pool))
        gone = _stood(row, pool, begin, then or WindowStart())
        used, parent = (_less(value, left, faded) for value, left in zip((used, parent), gone, strict=True))
    return Decayed(used, parent)


def settle(row: Usage, pool: NodePool, now: datetime, rates: Rates) -> None:
    """Bring the ledger up to `now` and let it run on at other rates. The caller saves the row."""
    used, parent = _advanced(row, pool, now)
    row.used, row.parent = list(used), list(parent)
    row.held, row.rate, row.parent_rate = list(rates.held), list(rates.charged), list(rates.parent)
    row.settled_at = max(now, row.settled_at)


def is_due(row: Usage, now: datetime, rates: Rates) -> bool:
    """Whether something changed, or has gone on for so long that nobody should look far back."""
    if (tuple(row.held), tuple(row.rate), tuple(row.parent_rate)) != (
        rates.held,
        rates.charged,
        rates.parent,
    ):
        return True
    return any(row.held) and now - row.settled_at >= SETTLE_AFTER


def _advanced(row: Usage, pool: NodePool, now: datetime) -> tuple[Triple, Triple]:
    since, used, parent = row.settled_at, _triple(row.used), _triple(row.parent)
    now = max(now, since)
    half_life = _half_life(pool)
    if pool.tumbling_window and pool.window and _window_start(now, pool.window) > since:
        since, used, parent = _window_start(now, pool.window), (0.0, 0.0, 0.0), (0.0, 0.0, 0.0)
    seconds = (now - since).total_seconds()
    return (
        _grown(used, row.rate, seconds, half_life),
        _grown(parent, row.parent_rate, seconds, half_life),
    )


def _stood(row: Usage, pool: NodePool, at: datetime, then: WindowStart) -> tuple[Triple, Triple]:
    """The ledger as it was at a time in the past."""
    if at >= row.settled_at:
        return _advanced(row, pool, at)
    before = then.before
    if before is None:
        return (0.0, 0.0, 0.0), (0.0, 0.0, 0.0)
    after: Usage | UsagePoint = then.after or row
    end = after.at if isinstance(after, UsagePoint) else after.settled_at
    whole, part = ((until - before.at).total_seconds() for until in (end, at))
    half_life = _half_life(pool)
    return (
        _between(_triple(before.used), _triple(after.used), part, whole, half_life),
        _between(_triple(before.parent), _triple(after.parent), part, whole, half_life),
    )


def _between(first: Triple, last: Triple, part: float, whole: float, half_life: float | None) -> Triple:
    """Part of the way from one value to the other, at the one rate that leads there."""
    if whole <= 0:
        return first
    weight = integral(0.0, 1.0, whole, half_life)
    rates = [(last[kind] - integral(first[kind], 0.0, whole, half_life)) / weight for kind in KINDS]
    return _grown(first, rates, part, half_life)


def _less(value: Triple, left: Triple, faded: float) -> Triple:
    a, b, c = (max(0.0, value[kind] - left[kind] * faded) for kind in KINDS)
    return a, b, c


def _half_life(pool: NodePool) -> float | None:
    return pool.half_life or (None if pool.window else HALF_LIFE)


def _grown(values: Triple, rates: Sequence[float], seconds: float, half_life: float | None) -> Triple:
    a, b, c = (integral(values[kind], rates[kind], seconds, half_life) for kind in KINDS)
    return a, b, c


def _triple(values: Sequence[float]) -> Triple:
    a, b, c = values
    return a, b, c


def _window_start(now: datetime, window: int) -> datetime:
    """Windows are counted from the epoch, so that everybody's begin together."""
    seconds = int(now.timestamp())
    return datetime.fromtimestamp(seconds - seconds % window, UTC)
