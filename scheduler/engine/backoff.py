"""Exponential backoff after evictions and failures."""

INITIAL_SECONDS, MAX_SECONDS = 5, 300
RUN_MULTIPLE = 10  # maximum backoff after an eviction, as a multiple of the evicted run's duration


def backoff_seconds(times: int) -> int:
    """Return the backoff in seconds after `times` (at least 1) evictions or failures."""
    return min(MAX_SECONDS, INITIAL_SECONDS << min(times - 1, 16))


def eviction_backoff_seconds(times: int, run_seconds: float) -> int:
    """Return the backoff in seconds after an eviction.

    `times` counts the workload's evictions. The backoff after a short run is short.
    """
    return min(backoff_seconds(times), max(INITIAL_SECONDS, round(RUN_MULTIPLE * run_seconds)))
