"""Compute the due times of cron expressions in a time zone."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import islice

from cronsim import CronSim

# Search windows of increasing length, to find the latest due time quickly even after a long pause.
WINDOWS = tuple(timedelta(days=days) for days in (1 / 24, 1, 40, 400, 3000))


def due_times(expression: str, zone: tzinfo, after: datetime) -> Iterator[datetime]:
    """Yield the due times after `after`, in UTC.

    Times that daylight saving skips are moved to the end of the gap. Times that occur twice are due once,
    except for hourly or more frequent runs.
    """
    for run in CronSim(expression, after.astimezone(zone)):
        yield run.astimezone(UTC)


def next_due_time(expression: str, zone: tzinfo, after: datetime) -> datetime | None:
    """Return the first due time after `after`, or None if the expression never fires."""
    return next(due_times(expression, zone, after), None)


def next_due_times(expression: str, zone: tzinfo, after: datetime, count: int) -> list[datetime]:
    return list(islice(due_times(expression, zone, after), count))


def latest_due_time(expression: str, zone: tzinfo, first: datetime, now: datetime) -> datetime:
    """Return the latest due time up to `now`. `first` is any due time that has already passed."""
    for window in WINDOWS:
        start = max(first, now - window)
        latest = None
        for run in due_times(expression, zone, start):
            if run > now:
                break
            latest = run
        if latest is not None:
            return latest
        if start == first:
            break
    return first
