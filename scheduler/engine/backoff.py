"""Backoff after an eviction or failure, in seconds."""

FIRST, LONGEST = 5, 300


def backoff_seconds(times: int) -> int:
    """Twice as long each time; `times` counts this one, from 1."""
    return min(LONGEST, FIRST << min(times - 1, 16))
