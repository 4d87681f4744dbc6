"""Parse metrics reported in logs, and reduce them to a bounded number of points."""

import json
import math
import re
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

METRICS_MAX = 50  # maximum number of metrics per workload
POINTS_MAX = 500  # maximum number of stored points per metric
STEP_MAX = 2**53
LINE_MAX = 4096  # maximum length in bytes of a reported line in a log
COUNT_MAX = 2**31 - 1  # non-finite values are counted only up to this number
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]{0,63}")
_MARK = b"berth-report "  # prefix that `berth.report` prints


class Sample(NamedTuple):
    """Reported value, which may be infinite or NaN."""

    name: str
    step: int
    value: float


class Point(NamedTuple):
    step: int
    value: float


@dataclass(slots=True)
class Series:
    """Reported values of one metric, reduced to at most POINTS_MAX points.

    `points` are sorted by step, with at most one point in each range of `stride` steps. `last` is the latest
    report. `lowest` and `highest` are exact. `not_finite_step` is set while the latest report is infinite or
    not a number.
    """

    points: list[Point] = field(default_factory=list)
    stride: int = 1
    last: Point | None = None
    lowest: Point | None = None
    highest: Point | None = None
    not_finite: int = 0
    not_finite_step: int | None = None
    has_new_points: bool = False

    def add(self, step: int, value: float) -> None:
        """Add a report. A new report replaces any existing report of the same step."""
        if not math.isfinite(value):
            self.not_finite = min(self.not_finite + 1, COUNT_MAX)
            self.not_finite_step = step
            return
        self.not_finite_step = None
        self.last = point = Point(step, value)
        if self.lowest is None or value < self.lowest.value:
            self.lowest = point
        if self.highest is None or value > self.highest.value:
            self.highest = point
        self._insert(point)

    def _insert(self, point: Point) -> None:
        at = bisect_left(self.points, point.step, key=lambda stored: stored.step)
        if at < len(self.points) and self.points[at].step == point.step:
            self.has_new_points |= self.points[at] != point
            self.points[at] = point
            return
        if at > 0 and self._range_index(self.points[at - 1]) == self._range_index(point):
            return
        if at < len(self.points) and self._range_index(self.points[at]) == self._range_index(point):
            self.points[at] = point
        else:
            self.points.insert(at, point)
        self.has_new_points = True
        while len(self.points) > POINTS_MAX:
            self.stride *= 2
            self.points = _first_point_per_range(self.points, self.stride)

    def _range_index(self, point: Point) -> int:
        return point.step // self.stride

    def downsample(self, count: int) -> list[Point]:
        """Return at most `count` evenly spaced points, ending with the latest."""
        points = self.points
        if self.last is not None and points and self.last.step > points[-1].step:
            points = [*points, self.last]
        if len(points) <= count:
            return points
        distance = (len(points) - 1) / max(count - 1, 1)
        return [points[-1 - round(n * distance)] for n in range(count)][::-1]


def parse_reports(text: bytes) -> Iterator[Sample]:
    """Yield the metrics reported in a log. Skip malformed reports."""
    start = text.find(_MARK)
    while start >= 0:
        start += len(_MARK)
        # Limit the search for the line's end, so that one long line with many prefixes takes linear time.
        end = text.find(b"\n", start, start + LINE_MAX + 1)
        if end < 0 and len(text) - start <= LINE_MAX:
            end = len(text)
        if end >= 0:
            yield from _parse_report(text[start:end])
        start = text.find(_MARK, start)


def _parse_report(line: bytes) -> Iterator[Sample]:
    try:
        report = json.loads(line)
    except (ValueError, RecursionError):
        return
    step = _parse_integer(report.pop("step", None)) if isinstance(report, dict) else None
    if step is None:
        return
    for name, value in report.items():
        if NAME.fullmatch(name) and isinstance(value, int | float) and not isinstance(value, bool):
            yield Sample(name, step, _parse_float(value))


def _parse_integer(value: Any) -> int | None:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    is_step = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= STEP_MAX
    return value if is_step else None


def _parse_float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:  # the integer is too large for a float
        return math.inf


def _first_point_per_range(points: list[Point], stride: int) -> list[Point]:
    ranges: dict[int, Point] = {}
    for point in points:
        ranges.setdefault(point.step // stride, point)
    return list(ranges.values())
