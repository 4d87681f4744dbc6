"""Backoff after an eviction or failure, in seconds."""

FIRST, LONGEST = 5, 300


def backoff_seconds(times: int) -> int:
    """Return the backoff after the given number of evictions or failures, which counts from 1."""
    return min(LONGEST, FIRST << min(times - 1, 16))
