"""Geometry of step charts over time, which templates draw as SVG."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count, groupby

WIDTH, HEIGHT = 1000, 200
TICKS = 4


@dataclass(frozen=True, slots=True)
class Area:
    """Area of a step chart. `edge` is the path of its upper edge."""

    kind: str
    path: str
    edge: str


@dataclass(frozen=True, slots=True)
class StepChart:
    """Stacked areas and a line.

    `marks` are (y, value) pairs from top to bottom. `limit` is the y-coordinate of a constant line.
    `readouts` is JSON for the script that shows the values under the pointer: for each point, the time in
    seconds, the areas, the line and any limit.
    """

    areas: tuple[Area, ...]
    line: str
    marks: tuple[tuple[int, int], ...]
    readouts: str
    limit: int | None = None


def step_chart(
    times: Sequence[float],
    stacked: Sequence[tuple[str, Sequence[int | None]]],
    line: Sequence[int | None],
    *,
    begin: float,
    end: float,
    least: int = 1,
    limit: int | None = None,
) -> StepChart:
    """Return a step chart from `begin` to `end`, with a scale that reaches at least `least`.

    Each number is drawn from its time until the time of the next number, and the last one until `end`. None
    leaves a gap. `limit` is drawn across the whole chart.
    """
    sums = [
        sum(value or 0 for value in values)
        for values in zip(*(numbers for _, numbers in stacked), strict=True)
    ]
    maximum = max([*sums, *(number for number in line if number is not None), least, limit or 0])
    step = _tick_step(maximum)
    top = step * -(-maximum // step)
    x_positions = [_x(max(at, begin), begin, end) for at in times] + [WIDTH]
    below, areas = [0] * len(times), list[Area]()
    for kind, numbers in stacked:
        above = [low + (number or 0) for low, number in zip(below, numbers, strict=True)]
        if any(numbers):
            outlines = [
                _outline(x_positions[first : after + 1], above[first:after], below[first:after], top)
                for first, after in _runs_without_gaps(numbers)
            ]
            edge = [None if number is None else height for number, height in zip(numbers, above, strict=True)]
            areas.append(Area(kind, " ".join(outlines), _line(x_positions, edge, top)))
        below = above
    marks = tuple((_y(mark, top), mark) for mark in range(top, -1, -step))
    numbers_by_time = zip(times, *(numbers for _, numbers in stacked), line, strict=True)
    last = [] if limit is None else [limit]
    readouts = json.dumps(
        [[round(at), *numbers, *last] for at, *numbers in numbers_by_time], separators=(",", ":")
    )
    limit_y = None if limit is None else _y(limit, top)
    return StepChart(tuple(areas), _line(x_positions, line, top), marks, readouts, limit_y)


def _runs_without_gaps(values: Sequence[int | None]) -> list[tuple[int, int]]:
    runs, begin = list[tuple[int, int]](), 0
    for is_gap, group in groupby(value is None for value in values):
        end = begin + len(list(group))
        if not is_gap:
            runs.append((begin, end))
        begin = end
    return runs


def _line(x_positions: Sequence[int], values: Sequence[int | None], top: int) -> str:
    parts = []
    before: int | None = None
    for value, left, right in zip(values, x_positions, x_positions[1:], strict=False):
        if value is not None:
            parts.append(f"{'M' if before is None else 'L'}{left} {_y(value, top)} L{right} {_y(value, top)}")
        before = value
    return " ".join(parts)


def _outline(x_positions: Sequence[int], above: Sequence[int], below: Sequence[int], top: int) -> str:
    return f"M{' L'.join([*_steps(x_positions, above, top), *reversed(_steps(x_positions, below, top))])} Z"


def _steps(x_positions: Sequence[int], values: Sequence[int], top: int) -> list[str]:
    return [
        f"{x} {_y(value, top)}"
        for value, left, right in zip(values, x_positions, x_positions[1:], strict=False)
        for x in (left, right)
    ]


def _tick_step(maximum: int) -> int:
    """Return the smallest step (1, 2, 5, 10, 20, ...) such that TICKS grid lines reach the maximum."""
    steps = (digit * 10**zeros for zeros in count() for digit in (1, 2, 5))
    return next(step for step in steps if step * TICKS >= maximum)


def _x(at: float, begin: float, end: float) -> int:
    return round(WIDTH * (at - begin) / (end - begin)) if end > begin else 0


def _y(value: int, top: int) -> int:
    return HEIGHT - round(HEIGHT * value / top)
