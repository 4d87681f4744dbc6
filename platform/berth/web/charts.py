"""Here we work out the geometry of charts over time; pages draw them as SVG, the style sheet colours."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count

WIDTH, HEIGHT = 1000, 200
TICKS = 4


@dataclass(frozen=True, slots=True)
class Area:
    kind: str
    path: str


@dataclass(frozen=True, slots=True)
class StepChart:
    """Areas one on the other, a line over them; `marks` are (y, number), from the top down."""

    areas: tuple[Area, ...]
    line: str
    marks: tuple[tuple[int, int], ...]


def step_chart(
    times: Sequence[float],
    stacked: Sequence[tuple[str, Sequence[int]]],
    line: Sequence[int],
    end: float,
) -> StepChart:
    """Each number holds from its time until the next one, the last until `end`."""
    sums = [sum(values) for values in zip(*(numbers for _, numbers in stacked), strict=True)]
    most = max([*sums, *line, 1])
    step = _tick(most)
    top = step * -(-most // step)
    across = [_x(at, times[0], end) for at in times] + [WIDTH]
    below, areas = [0] * len(times), []
    for kind, numbers in stacked:
        above = [low + number for low, number in zip(below, numbers, strict=True)]
        if any(numbers):
            areas.append(Area(kind, _outline(across, above, below, top)))
        below = above
    steps = _steps(across, line, top)
    marks = tuple((_y(mark, top), mark) for mark in range(top, -1, -step))
    return StepChart(tuple(areas), f"M{' L'.join(steps)}", marks)


def _outline(across: Sequence[int], above: Sequence[int], below: Sequence[int], top: int) -> str:
    return f"M{' L'.join([*_steps(across, above, top), *reversed(_steps(across, below, top))])} Z"


def _steps(across: Sequence[int], values: Sequence[int], top: int) -> list[str]:
    return [
        f"{x} {_y(value, top)}"
        for value, left, right in zip(values, across, across[1:], strict=False)
        for x in (left, right)
    ]


def _tick(most: int) -> int:
    """1, 2, 5, 10, 20 ...: the least that needs no more than so many lines."""
    steps = (digit * 10**zeros for zeros in count() for digit in (1, 2, 5))
    return next(step for step in steps if step * TICKS >= most)


def _x(at: float, begin: float, end: float) -> int:
    return round(WIDTH * (at - begin) / (end - begin)) if end > begin else 0


def _y(value: int, top: int) -> int:
    return HEIGHT - round(HEIGHT * value / top)
