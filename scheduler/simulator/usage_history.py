"""Decay the usage of queues between two cycles of a simulation."""

import math
from dataclasses import dataclass, field

from scheduler.engine.model import FairShareMode, Usage

Three = tuple[float, float, float]


@dataclass(frozen=True, slots=True)
class Rates:
    """Charge of a queue and share of its parent, per second."""

    charged: Three
    parent: Three


@dataclass(slots=True)
class Stretch:
    """A period with constant rates."""

    since: float
    until: float
    rates: Rates


@dataclass(slots=True)
class History:
    """Usage of one queue in one pool: a decayed value, or the periods of a sliding window."""

    mode: FairShareMode
    usage: Usage
    stretches: list[Stretch] = field(default_factory=list)

    @classmethod
    def of(cls, mode: FairShareMode, usage: Usage, now: int) -> "History":
        """Return a history with the initial usage spread evenly over the window."""
        history = cls(mode, usage)
        if mode.window is not None and not mode.tumbling and usage != Usage():
            whole = _weight(mode, now, now - mode.window, now)
            rates = Rates(_times(usage.used, 1 / whole), _times(usage.parent, 1 / whole))
            history.stretches.append(Stretch(now - mode.window, now, rates))
        return history

    def passes(self, since: int, until: int, rates: Rates) -> None:
        """Advance the clock at these rates."""
        mode = self.mode
        if mode.window is None or mode.tumbling:
            self.usage = self._decayed_usage(since, until, rates)
            return
        last = self.stretches[-1] if self.stretches else None
        if last is not None and last.until == since and last.rates == rates:
            last.until = until
        else:
            self.stretches.append(Stretch(since, until, rates))
        self.stretches = [stretch for stretch in self.stretches if stretch.until > until - mode.window]
        self.usage = self._window_usage(until, mode.window)

    def _decayed_usage(self, since: int, until: int, rates: Rates) -> Usage:
        mode, usage, begin = self.mode, self.usage, since
        if mode.window is not None and until // mode.window > since // mode.window:
            begin = until - until % mode.window  # a new calendar window starts at zero
            usage = Usage()
        retained = 1.0 if mode.half_life is None else math.pow(2, -(until - begin) / mode.half_life)
        weight = _weight(mode, until, begin, until)
        return Usage(
            _plus(_times(usage.used, retained), _times(rates.charged, weight)),
            _plus(_times(usage.parent, retained), _times(rates.parent, weight)),
        )

    def _window_usage(self, now: int, window: int) -> Usage:
        used: Three = (0.0, 0.0, 0.0)
        parent: Three = (0.0, 0.0, 0.0)
        for stretch in self.stretches:
            weight = _weight(self.mode, now, max(stretch.since, now - window), stretch.until)
            used = _plus(used, _times(stretch.rates.charged, weight))
            parent = _plus(parent, _times(stretch.rates.parent, weight))
        return Usage(used, parent)


def _weight(mode: FairShareMode, now: float, since: float, until: float) -> float:
    """Return the current weight of one unit that was used during the whole period."""
    half_life = mode.half_life
    if half_life is None:
        return until - since
    late, early = math.pow(2, -(now - until) / half_life), math.pow(2, -(now - since) / half_life)
    return (late - early) * half_life / math.log(2)


def _times(values: Three, factor: float) -> Three:
    return values[0] * factor, values[1] * factor, values[2] * factor


def _plus(left: Three, right: Three) -> Three:
    return left[0] + right[0], left[1] + right[1], left[2] + right[2]
