"""Geometry of the line charts that templates draw as SVG, with metric steps on the x-axis."""

import json
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass

WIDTH, HEIGHT = 1000, 200
TICKS = 4


@dataclass(frozen=True, slots=True)
class Line:
    """Line of one series. `kind` is its CSS class."""

    label: str
    kind: str
    path: str
    readouts: str


@dataclass(frozen=True, slots=True)
class LineChart:
    """Lines on common axes.

    `marks` are (y, number) pairs from top to bottom. `readouts` is JSON for the script that shows the numbers
    under the pointer.
    """

    lines: tuple[Line, ...]
    marks: tuple[tuple[float, str], ...]
    begin: int
    end: int

    @property
    def readouts(self) -> str:
        return self.lines[0].readouts if self.lines else "[]"


def line_chart(series: Sequence[tuple[str, str, Sequence[tuple[int, float | None]]]]) -> LineChart:
    """Return a chart of the series, each with its label, CSS class and sorted points.

    A line has a gap where a value is missing.
    """
    points = [(step, value) for _, _, each in series for step, value in each if value is not None]
    if not points:
        return LineChart((), (), 0, 0)
    begin, end = min(step for step, _ in points), max(step for step, _ in points)
    marks = _axis_marks(min(value for _, value in points), max(value for _, value in points))
    low, high = marks[0], marks[-1]

    def position(step: int, value: float) -> str:
        x = WIDTH * (step - begin) / (end - begin) if end > begin else 0.0
        return f"{x:.1f} {_y(value, low, high):.1f}"

    lines = []
    for label, kind, each in series:
        parts, is_new = list[str](), True
        for step, value in each:
            if value is not None:
                parts.append(f"{'M' if is_new else 'L'}{position(step, value)}")
            is_new = value is None
        if len(parts) == 1:  # a horizontal line, because a single point would be invisible
            parts.append(f"L{WIDTH} {parts[0].split()[1]}")
        path = " ".join(parts)
        lines.append(Line(label, kind, path, json.dumps([list(point) for point in each])))
    labels = tuple((_y(mark, low, high), f"{mark:.6g}") for mark in reversed(marks))
    return LineChart(tuple(lines), labels, begin, end)


def _y(value: float, low: float, high: float) -> float:
    # Halve the numbers first, because the difference between two large numbers may overflow.
    return HEIGHT - HEIGHT * ((value / 2 - low / 2) / (high / 2 - low / 2))


def _axis_marks(low: float, high: float) -> list[float]:
    """Return round numbers in ascending order that cover the range from `low` to `high`."""
    span = high / 2 - low / 2
    if not span or not _allows_round_marks(low, high):
        margin = min(abs(high) / 2, 1e300) or 0.5
        largest = sys.float_info.max
        return [low, high] if span else [max(high - margin, -largest), min(high + margin, largest)]
    step = _smallest_round_step(2 * span / TICKS)
    first, last = math.floor(low / step), math.ceil(high / step)
    return [number * step for number in range(first, max(last, first + 1) + 1)]


def _allows_round_marks(low: float, high: float) -> bool:
    """Return whether round marks are possible: they must neither overflow nor all be the same number."""
    largest = max(abs(low), abs(high))
    return largest < 1e300 and high - low > max(largest * 1e-9, 1e-300)


def _smallest_round_step(minimum: float) -> float:
    """Return the smallest round step that is at least `minimum`: 1, 2 or 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(minimum))
    return next(digit * power for digit in (1, 2, 5, 10, 20) if digit * power >= minimum)
