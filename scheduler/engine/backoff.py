"""Exponential backoff after evictions and failures."""

INITIAL_SECONDS, MAX_SECONDS = 5, 300


def backoff_seconds(times: int) -> int:
    """Return the backoff in seconds after `times` (at least 1) evictions or failures."""
    return min(MAX_SECONDS, INITIAL_SECONDS << min(times - 1, 16))
