"""Compute node counts over time from each node's phases."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum


class NodePhase(StrEnum):
    """Phase of a node in the node counts. Lost and ended nodes are `GONE` and are not counted."""

    PENDING = "pending"
    CURRENT = "current"
    DRAINING = "draining"
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class NodeHistory:
    """Phases of one node over time.

    The node is pending from `began` on. `moves` are (time, phase) pairs in the order in which they were
    recorded.
    """

    began: float
    moves: tuple[tuple[float, NodePhase], ...] = ()


@dataclass(frozen=True, slots=True)
class TimelinePoint:
    """Node counts from `at` until the next point."""

    at: float
    desired: int
    current: int
    pending: int
    draining: int


def build_timeline(
    histories: Iterable[NodeHistory], desired: Sequence[tuple[float, int]], begin: float, end: float
) -> tuple[TimelinePoint, ...]:
    """Return a point at `begin`, and one for each later change of a count.

    `desired` lists at least one (time, count) pair. The first pair's count also applies before its time.
    """
    changes = sorted(
        [*_node_changes(histories), *((at, "desired", count) for at, count in desired)], key=_change_time
    )
    counts = {"desired": desired[0][1], "current": 0, "pending": 0, "draining": 0}
    points: list[TimelinePoint] = []
    for at, kind, number in changes:
        if at > end:
            break
        counts[kind] = number if kind == "desired" else counts[kind] + number
        point = TimelinePoint(max(at, begin), **counts)
        if points and points[-1].at == point.at:
            points[-1] = point
        else:
            points.append(point)
    if not points or points[0].at > begin:
        points.insert(0, TimelinePoint(begin, desired[0][1], 0, 0, 0))
    return tuple(_drop_duplicates(points))


def downsample(points: Sequence[TimelinePoint], points_max: int, end: float) -> tuple[TimelinePoint, ...]:
    """Return at most `points_max` points of a timeline.

    The timeline is split into that many equal periods, and only the last point of each is kept.
    """
    if len(points) <= points_max or points_max < 1:
        return tuple(points)
    begin = points[0].at
    period = (end - begin) / points_max or 1.0
    last = {min(points_max - 1, int((point.at - begin) / period)): point for point in points}
    return tuple(last[number] for number in sorted(last))


def _node_changes(histories: Iterable[NodeHistory]) -> Iterable[tuple[float, str, int]]:
    for history in histories:
        phase, at = NodePhase.PENDING, history.began
        yield at, phase, 1
        for moved_at, to in history.moves:
            at = max(at, moved_at)  # time never goes backwards, even if the clock was set back
            if to == phase:
                continue
            if phase != NodePhase.GONE:
                yield at, phase, -1
            if to != NodePhase.GONE:
                yield at, to, 1
            phase = to


def _change_time(change: tuple[float, str, int]) -> float:
    return change[0]


def _drop_duplicates(points: Sequence[TimelinePoint]) -> Iterable[TimelinePoint]:
    before: TimelinePoint | None = None
    for point in points:
        if before is None or _node_counts(point) != _node_counts(before):
            yield point
        before = point


def _node_counts(point: TimelinePoint) -> tuple[int, int, int, int]:
    return point.desired, point.current, point.pending, point.draining
