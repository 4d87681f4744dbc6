"""Decayed usage of queues.

The usage is exact: rates are constant between changes, and it is computed at every change. `used` grows by
the charged part of the queue's allocation, and `parent` grows by the parent's share. Both decay with the
pool's half-life.
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
RESOURCE_INDEXES = range(3)
SETTLE_AFTER = timedelta(minutes=5)

Triple = tuple[float, float, float]


@dataclass(frozen=True, slots=True)
class UsageRates:
    """Rates at which a usage ledger grows: the queue's allocation, the charged part of this allocation, and
    the parent's share.
    """

    held: tuple[int, int, int] = (0, 0, 0)
    charged: Triple = (0.0, 0.0, 0.0)
    parent: Triple = (0.0, 0.0, 0.0)


def integrate_with_decay(value: float, rate: float, seconds: float, half_life: float | None) -> float:
    """Return `value` after `seconds` at a constant `rate`. Without a half-life, the value does not decay."""
    if half_life is None:
        return value + rate * seconds
    left = 2.0 ** (-seconds / half_life)
    return value * left + rate * (1.0 - left) * half_life / math.log(2)


def decayed_usage(row: Usage, pool: NodePool, now: datetime, then: WindowStart | None = None) -> Decayed:
    """Return a queue's decayed usage at `now`, regardless of when its ledger was last updated."""
    used, parent = _usage_at(row, pool, now)
    if is_sliding(pool):
        begin = window_start(pool, now)
        decay_factor = integrate_with_decay(1.0, 0.0, (now - begin).total_seconds(), _half_life(pool))
        before = _ledger_at(row, pool, begin, then or WindowStart())
        used, parent = (
            _subtract_ledger(value, left, decay_factor)
            for value, left in zip((used, parent), before, strict=True)
        )
    return Decayed(used, parent)


def settle_ledger(row: Usage, pool: NodePool, now: datetime, rates: UsageRates) -> None:
    """Advance the ledger to `now` and set its new rates. The caller saves the row."""
    used, parent = _usage_at(row, pool, now)
    row.used, row.parent = list(used), list(parent)
    row.held, row.rate, row.parent_rate = list(rates.held), list(rates.charged), list(rates.parent)
    row.settled_at = max(now, row.settled_at)


def needs_settling(row: Usage, now: datetime, rates: UsageRates) -> bool:
    """Return whether the ledger must be updated, either because its rates have changed or because
    SETTLE_AFTER has passed.
    """
    if (tuple(row.held), tuple(row.rate), tuple(row.parent_rate)) != (
        rates.held,
        rates.charged,
        rates.parent,
    ):
        return True
    return any(row.held) and now - row.settled_at >= SETTLE_AFTER


def _usage_at(row: Usage, pool: NodePool, now: datetime) -> tuple[Triple, Triple]:
    since, used, parent = row.settled_at, _to_triple(row.used), _to_triple(row.parent)
    now = max(now, since)
    half_life = _half_life(pool)
    if pool.tumbling_window and pool.window and _calendar_window_start(now, pool.window) > since:
        since, used, parent = _calendar_window_start(now, pool.window), (0.0, 0.0, 0.0), (0.0, 0.0, 0.0)
    seconds = (now - since).total_seconds()
    return (
        _accrue_usage(used, row.rate, seconds, half_life),
        _accrue_usage(parent, row.parent_rate, seconds, half_life),
    )


def _ledger_at(row: Usage, pool: NodePool, at: datetime, then: WindowStart) -> tuple[Triple, Triple]:
    if at >= row.settled_at:
        return _usage_at(row, pool, at)
    before = then.before
    if before is None:
        return (0.0, 0.0, 0.0), (0.0, 0.0, 0.0)
    after: Usage | UsagePoint = then.after or row
    end = after.at if isinstance(after, UsagePoint) else after.settled_at
    whole, part = ((until - before.at).total_seconds() for until in (end, at))
    half_life = _half_life(pool)
    return (
        _interpolate(_to_triple(before.used), _to_triple(after.used), part, whole, half_life),
        _interpolate(_to_triple(before.parent), _to_triple(after.parent), part, whole, half_life),
    )


def _interpolate(first: Triple, last: Triple, part: float, whole: float, half_life: float | None) -> Triple:
    if whole <= 0:
        return first
    weight = integrate_with_decay(0.0, 1.0, whole, half_life)
    rates = [
        (last[kind] - integrate_with_decay(first[kind], 0.0, whole, half_life)) / weight
        for kind in RESOURCE_INDEXES
    ]
    return _accrue_usage(first, rates, part, half_life)


def _subtract_ledger(value: Triple, left: Triple, decay_factor: float) -> Triple:
    a, b, c = (max(0.0, value[kind] - left[kind] * decay_factor) for kind in RESOURCE_INDEXES)
    return a, b, c


def _half_life(pool: NodePool) -> float | None:
    return pool.half_life or (None if pool.window else HALF_LIFE)


def _accrue_usage(values: Triple, rates: Sequence[float], seconds: float, half_life: float | None) -> Triple:
    a, b, c = (
        integrate_with_decay(values[kind], rates[kind], seconds, half_life) for kind in RESOURCE_INDEXES
    )
    return a, b, c


def _to_triple(values: Sequence[float]) -> Triple:
    a, b, c = values
    return a, b, c


def _calendar_window_start(now: datetime, window: int) -> datetime:
    """Return the start of the current window. Windows are aligned to the Unix epoch."""
    seconds = int(now.timestamp())
    return datetime.fromtimestamp(seconds - seconds % window, UTC)
