"""Scale of a time bar on which short periods remain wide enough to be seen and pointed at."""

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise

MIN_WIDTH = 1.5  # percent of the bar
MIN_WIDTH_SUM = 50  # percent of the bar that minimum widths may take up together


@dataclass(frozen=True, slots=True)
class Scale:
    """Maps times to positions in percent. Between two neighbouring `times`, the scale is linear."""

    times: tuple[datetime, ...]
    positions: tuple[float, ...]

    def position(self, at: datetime) -> float:
        place = min(max(bisect_right(self.times, at), 1), len(self.times) - 1)
        begin, end = self.times[place - 1 : place + 1]
        left, right = self.positions[place - 1 : place + 1]
        share = min(1.0, max(0.0, (at - begin) / (end - begin)))
        return round(left + share * (right - left), 2)


def build_scale(times: Iterable[datetime]) -> Scale:
    """Return a scale with a minimum width between neighbouring times. Longer periods are narrowed to make
    room for short ones.

    Raises ValueError for fewer than two different times.
    """
    edges = sorted(set(times))
    if len(edges) < 2:
        raise ValueError("A scale needs at least two different times.")
    total = edges[-1] - edges[0]
    widths = [100 * ((end - begin) / total) for begin, end in pairwise(edges)]
    least = min(MIN_WIDTH, MIN_WIDTH_SUM / len(widths))
    reserved = sum(least for width in widths if width < least)
    long = sum(width for width in widths if width >= least)
    positions = [0.0]
    for width in widths:
        positions.append(positions[-1] + (least if width < least else width * (100 - reserved) / long))
    return Scale(tuple(edges), (*positions[:-1], 100.0))
