"""Here we say how long somebody who gave way, or failed, waits before the next attempt."""

from datetime import datetime, timedelta

FIRST = 5
LONGEST = 300


def until(now: datetime, times: int) -> datetime:
    """Twice as long each time; `times` counts this one, from 1."""
    return now + timedelta(seconds=min(LONGEST, FIRST * 2 ** min(times - 1, 16)))
