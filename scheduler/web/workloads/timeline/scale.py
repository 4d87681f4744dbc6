"""Linear scale of a time bar."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class Scale:
    """Scale that maps times to positions in percent."""

    begin: datetime
    end: datetime

    def position(self, at: datetime) -> float:
        share = (at - self.begin) / (self.end - self.begin)
        return round(100 * min(1.0, max(0.0, share)), 2)


def build_scale(times: Iterable[datetime]) -> Scale:
    """Return a scale from the first to the last time.

    Raises ValueError for fewer than two different times.
    """
    edges = sorted(set(times))
    if len(edges) < 2:
        raise ValueError("A time scale needs at least two distinct times.")
    return Scale(edges[0], edges[-1])
