"""Decide how long a pool waits after failed boots, and when it stops ordering nodes."""

FIRST_DELAY = 30
LONGEST_DELAY = 1800


def delay_after(failures: int) -> int:
    """Seconds from the latest of so many failed boots in a row to the next order; doubles with each one."""
    if failures <= 0:
        return 0
    doublings = min(failures - 1, 10)  # the longest delay is reached before
    return min(FIRST_DELAY << doublings, LONGEST_DELAY)


def stops_provisioning(failures: int, limit: int) -> bool:
    """A limit of 0 never stops a pool; its delays still grow."""
    return 0 < limit <= failures
