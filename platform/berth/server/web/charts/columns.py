"""Geometry of stacked columns over time, which templates draw as SVG."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count

WIDTH, HEIGHT = 1000, 200
TICKS = 4
GAP = 0.15


@dataclass(frozen=True, slots=True)
class Piece:
    kind: str
    x: float
    y: float
    width: float
    height: float
    label: str


@dataclass(frozen=True, slots=True)
class Columns:
    """Stacked columns. `marks` are (y, number) pairs from top to bottom."""

    pieces: tuple[Piece, ...]
    marks: tuple[tuple[float, str], ...]


def columns(layers: Sequence[tuple[str, Sequence[tuple[float, str]]]]) -> Columns:
    """Return stacked columns. Each layer has a kind, and the amount and title of each of its columns."""
    places = max((len(values) for _, values in layers), default=0)
    sums = [sum(values[place][0] for _, values in layers) for place in range(places)]
    step = _tick(max([*sums, 0.0]))
    top = step * max(1, -(-max([*sums, 0.0]) // step))
    wide = WIDTH / max(places, 1)
    pieces, below = [], [0.0] * places
    for kind, values in layers:
        for place, (amount, label) in enumerate(values):
            if amount > 0:
                tall = HEIGHT * amount / top
                y = HEIGHT - HEIGHT * below[place] / top - tall
                x = wide * (place + GAP / 2)
                pieces.append(Piece(kind, *_rounded(x, y, wide * (1 - GAP), tall), label))
                below[place] += amount
    lines = round(top / step)
    marks = tuple((HEIGHT * (lines - n) / lines, f"{step * n:,g}") for n in range(lines, -1, -1))
    return Columns(tuple(pieces), marks)


def _tick(most: float) -> float:
    """Return the smallest step of ... 0.1, 0.2, 0.5, 1, 2, 5 ... that needs no more than TICKS lines."""
    if most <= 0:
        return 1.0
    steps = (digit * 10.0**zeros for zeros in count(-6) for digit in (1, 2, 5))
    return next(step for step in steps if step * TICKS >= most)


def _rounded(*values: float) -> tuple[float, float, float, float]:
    x, y, width, height = (round(value, 2) for value in values)
    return x, y, width, height
