"""Geometry of stacked columns over time, which templates draw as SVG."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count

WIDTH, HEIGHT = 1000, 200
TICKS = 4
GAP = 0.15


@dataclass(frozen=True, slots=True)
class ColumnSegment:
    kind: str
    x: float
    y: float
    width: float
    height: float
    label: str


@dataclass(frozen=True, slots=True)
class ColumnChart:
    """Layout of stacked columns. `marks` are the axis marks, as (y, number) pairs from top to bottom."""

    pieces: tuple[ColumnSegment, ...]
    marks: tuple[tuple[float, str], ...]


def stacked_columns(
    layers: Sequence[tuple[str, Sequence[tuple[float, str]]]], *, whole: bool = False
) -> ColumnChart:
    """Lay out stacked columns.

    Each layer has a kind, and one (amount, title) pair per column. With `whole`, all axis marks are whole
    numbers.
    """
    column_count = max((len(values) for _, values in layers), default=0)
    sums = [sum(values[column][0] for _, values in layers) for column in range(column_count)]
    highest = round(max([*sums, 0.0]), 6)  # without rounding errors, which would add a grid line
    step = max(_tick_step(highest), 1.0 if whole else 0.0)
    top = step * max(1, -(-highest // step))
    column_width = WIDTH / max(column_count, 1)
    pieces, below = [], [0.0] * column_count
    for kind, values in layers:
        for column, (amount, label) in enumerate(values):
            if amount > 0:
                piece_height = HEIGHT * amount / top
                y = HEIGHT - HEIGHT * below[column] / top - piece_height
                x = column_width * (column + GAP / 2)
                pieces.append(
                    ColumnSegment(
                        kind, *_round_coordinates(x, y, column_width * (1 - GAP), piece_height), label
                    )
                )
                below[column] += amount
    lines = round(top / step)
    marks = tuple((HEIGHT * (lines - n) / lines, f"{step * n:,g}") for n in range(lines, -1, -1))
    return ColumnChart(tuple(pieces), marks)


def _tick_step(maximum: float) -> float:
    """Return the smallest step (0.1, 0.2, 0.5, 1, ...) such that TICKS grid lines reach the maximum."""
    if maximum <= 0:
        return 1.0
    steps = (digit * 10.0**zeros for zeros in count(-6) for digit in (1, 2, 5))
    return next(step for step in steps if step * TICKS >= maximum)


def _round_coordinates(*values: float) -> tuple[float, float, float, float]:
    x, y, width, height = (round(value, 2) for value in values)
    return x, y, width, height
