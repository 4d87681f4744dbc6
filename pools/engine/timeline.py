"""Number of nodes over time, from the life of each node."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum


class NodePhase(StrEnum):
    """What a node counts as; one that is lost or ended counts as nothing."""

    PENDING = "pending"
    CURRENT = "current"
    DRAINING = "draining"
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class Life:
    """One node, pending from `began` on. `moves` in the order in which they were written down."""

    began: float
    moves: tuple[tuple[float, NodePhase], ...] = ()


@dataclass(frozen=True, slots=True)
class Point:
    """From `at` on, until the next point."""

    at: float
    desired: int
    current: int
    pending: int
    draining: int


def timeline(
    lives: Iterable[Life], desired: Sequence[tuple[float, int]], begin: float, end: float
) -> tuple[Point, ...]:
    """A point at `begin` and one for each later moment at which a number changed. `desired`: from when on how
    many, at least one entry, in order of time; before the first of them as many as from it on."""
    changes = sorted([*_of_nodes(lives), *((at, "desired", count) for at, count in desired)], key=_when)
    counts = {"desired": desired[0][1], "current": 0, "pending": 0, "draining": 0}
    points: list[Point] = []
    for at, what, number in changes:
        if at > end:
            break
        counts[what] = number if what == "desired" else counts[what] + number
        here = Point(max(at, begin), **counts)
        if points and points[-1].at == here.at:
            points[-1] = here
        else:
            points.append(here)
    if not points or points[0].at > begin:
        points.insert(0, Point(begin, desired[0][1], 0, 0, 0))
    return tuple(_without_repeats(points))


def thinned(points: Sequence[Point], most: int, end: float) -> tuple[Point, ...]:
    """At most so many: the last of each stretch of equal length, where there are more."""
    if len(points) <= most or most < 1:
        return tuple(points)
    begin = points[0].at
    stretch = (end - begin) / most or 1.0
    last = {min(most - 1, int((point.at - begin) / stretch)): point for point in points}
    return tuple(last[number] for number in sorted(last))


def _of_nodes(lives: Iterable[Life]) -> Iterable[tuple[float, str, int]]:
    for life in lives:
        phase, at = NodePhase.PENDING, life.began
        yield at, phase, 1
        for moved, to in life.moves:
            at = max(at, moved)  # a clock that was set back undoes nothing
            if to == phase:
                continue
            if phase != NodePhase.GONE:
                yield at, phase, -1
            if to != NodePhase.GONE:
                yield at, to, 1
            phase = to


def _when(change: tuple[float, str, int]) -> float:
    return change[0]


def _without_repeats(points: Sequence[Point]) -> Iterable[Point]:
    before: Point | None = None
    for point in points:
        if before is None or _counts(point) != _counts(before):
            yield point
        before = point


def _counts(point: Point) -> tuple[int, int, int, int]:
    return point.desired, point.current, point.pending, point.draining
