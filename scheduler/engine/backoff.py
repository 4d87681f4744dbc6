"""Backoff after an eviction or failure, in seconds."""

FIRST, LONGEST = 5, 300


def backoff_seconds(times: int) -> int:
    """Return the backoff after `times` evictions or failures, at least 1."""
    return min(LONGEST, FIRST << min(times - 1, 16))
