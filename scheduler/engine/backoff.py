"""Here we say how long somebody who gave way waits before the next attempt."""

FIRST, LONGEST = 5, 300


def backoff_seconds(times: int) -> int:
    """Twice as long each time; `times` counts this one, from 1."""
    return min(LONGEST, FIRST << min(times - 1, 16))
