"""Usage history of queues in a simulation: decayed usage, or usage in calendar or sliding windows."""

import math
from dataclasses import dataclass, field

from scheduler.engine.model import FairShareMode, Usage

PerResource = tuple[float, float, float]


@dataclass(frozen=True, slots=True)
class AllocationRates:
    """Rates at which usage accrues: the amounts charged to a queue, and its parent's share."""

    charged: PerResource
    parent: PerResource


@dataclass(slots=True)
class AllocationPeriod:
    """Period during which a queue's allocation rates were constant."""

    since: float
    until: float
    rates: AllocationRates


@dataclass(slots=True)
class UsageHistory:
    """Usage of one queue in one pool: a decayed value, or the periods of a sliding window."""

    mode: FairShareMode
    usage: Usage
    periods: list[AllocationPeriod] = field(default_factory=list)

    @classmethod
    def start(cls, mode: FairShareMode, usage: Usage, now: int) -> "UsageHistory":
        """Return a history with the initial usage spread evenly over the window."""
        history = cls(mode, usage)
        if mode.window is not None and not mode.tumbling and usage != Usage():
            whole = _weight(mode, now, now - mode.window, now)
            rates = AllocationRates(
                _scale_amounts(usage.used, 1 / whole), _scale_amounts(usage.parent, 1 / whole)
            )
            history.periods.append(AllocationPeriod(now - mode.window, now, rates))
        return history

    def advance(self, since: int, until: int, rates: AllocationRates) -> None:
        """Charge usage at constant `rates` from `since` to `until`."""
        mode = self.mode
        if mode.window is None or mode.tumbling:
            self.usage = self._decayed_usage(since, until, rates)
            return
        last = self.periods[-1] if self.periods else None
        if last is not None and last.until == since and last.rates == rates:
            last.until = until
        else:
            self.periods.append(AllocationPeriod(since, until, rates))
        self.periods = [period for period in self.periods if period.until > until - mode.window]
        self.usage = self._window_usage(until, mode.window)

    def _decayed_usage(self, since: int, until: int, rates: AllocationRates) -> Usage:
        mode, usage, begin = self.mode, self.usage, since
        if mode.window is not None and until // mode.window > since // mode.window:
            begin = until - until % mode.window  # a new calendar window starts at zero
            usage = Usage()
        retained = 1.0 if mode.half_life is None else math.pow(2, -(until - begin) / mode.half_life)
        weight = _weight(mode, until, begin, until)
        return Usage(
            _add_amounts(_scale_amounts(usage.used, retained), _scale_amounts(rates.charged, weight)),
            _add_amounts(_scale_amounts(usage.parent, retained), _scale_amounts(rates.parent, weight)),
        )

    def _window_usage(self, now: int, window: int) -> Usage:
        used: PerResource = (0.0, 0.0, 0.0)
        parent: PerResource = (0.0, 0.0, 0.0)
        for period in self.periods:
            weight = _weight(self.mode, now, max(period.since, now - window), period.until)
            used = _add_amounts(used, _scale_amounts(period.rates.charged, weight))
            parent = _add_amounts(parent, _scale_amounts(period.rates.parent, weight))
        return Usage(used, parent)


def _weight(mode: FairShareMode, now: float, since: float, until: float) -> float:
    """Return the decayed usage, in unit-seconds, of one unit allocated during the entire period."""
    half_life = mode.half_life
    if half_life is None:
        return until - since
    late, early = math.pow(2, -(now - until) / half_life), math.pow(2, -(now - since) / half_life)
    return (late - early) * half_life / math.log(2)


def _scale_amounts(values: PerResource, factor: float) -> PerResource:
    return values[0] * factor, values[1] * factor, values[2] * factor


def _add_amounts(left: PerResource, right: PerResource) -> PerResource:
    return left[0] + right[0], left[1] + right[1], left[2] + right[2]
