"""Labels for a time axis, at round times in the reader's time zone."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, tzinfo

MAX_LABELS = 6
MAX_COLUMN_LABELS = 8
MINUTE, HOUR, DAY = 60, 3600, 86400
STEPS = (
    MINUTE, 2 * MINUTE, 5 * MINUTE, 10 * MINUTE, 15 * MINUTE, 30 * MINUTE, HOUR, 2 * HOUR, 3 * HOUR, 4 * HOUR,
    6 * HOUR, 12 * HOUR, DAY, 2 * DAY, 7 * DAY, 14 * DAY, 30 * DAY,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class TimeLabel:
    """Label on a time axis, with its position in percent of the axis length."""

    position: float
    text: str
    is_first: bool = False  # True for the first label, whose text is to the right of its tick
    is_near: bool = False  # True if the label does not fit into a narrow window


def time_labels(begin: datetime, end: datetime, zone: tzinfo) -> list[TimeLabel]:
    """Return up to MAX_LABELS labels at round local times, such as 14:30, or `26 Nov` at midnight.

    Labels that would not fit at the ends of the axis are omitted.
    """
    return [label for label in _labels_at_round_times(begin, end, zone) if 4 <= label.position <= 96]


def time_labels_with_begin(begin: datetime, end: datetime, zone: tzinfo) -> list[TimeLabel]:
    """Return labels at the beginning of the axis and at the round local times that fit.

    The first label has a date if the axis is longer than a day.
    """
    is_long = end - begin > timedelta(days=1)
    first = TimeLabel(0, f"{begin.astimezone(zone):{'%-d %b %H:%M' if is_long else '%H:%M'}}", is_first=True)
    covered, covered_if_narrow = (17, 30) if is_long else (9, 16)  # width of the first label, in percent
    return [
        first,
        *(
            replace(label, is_near=not covered_if_narrow <= label.position <= 94)
            for label in _labels_at_round_times(begin, end, zone)
            if covered <= label.position <= 96
        ),
    ]


def _labels_at_round_times(begin: datetime, end: datetime, zone: tzinfo) -> list[TimeLabel]:
    seconds = (end - begin).total_seconds()
    if seconds <= 0:
        return []
    step = next((each for each in STEPS if seconds / each <= MAX_LABELS), STEPS[-1])
    return [
        TimeLabel(round(100 * (at - begin).total_seconds() / seconds, 2), _label_text(at.astimezone(zone)))
        for at in _tick_times(begin.astimezone(zone), end, step)
    ]


def column_labels(starts: Sequence[datetime], zone: tzinfo) -> list[TimeLabel]:
    """Return up to MAX_COLUMN_LABELS labels, each below the middle of its column in the chart."""
    every = -(-len(starts) // MAX_COLUMN_LABELS)
    return [
        TimeLabel(round(100 * (place + 0.5) / len(starts), 2), _label_text(at.astimezone(zone)))
        for place, at in enumerate(starts)
        if place % every == 0
    ]


def _tick_times(begin: datetime, end: datetime, step: int) -> Iterator[datetime]:
    """Yield the multiples of `step` since local midnight. Days may have 23 or 25 hours."""
    local = begin.replace(tzinfo=None)
    midnight = local.replace(hour=0, minute=0, second=0, microsecond=0)
    elapsed = (local - midnight).total_seconds()
    at = midnight + timedelta(seconds=-(-elapsed // step) * step)
    while (moment := at.replace(tzinfo=begin.tzinfo)) <= end:
        yield moment
        at += timedelta(seconds=step)


def _label_text(at: datetime) -> str:
    return f"{at.day} {at:%b}" if (at.hour, at.minute) == (0, 0) else f"{at:%H:%M}"
