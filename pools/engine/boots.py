"""Delay of orders after failed boots, and the end of provisioning."""

FIRST_DELAY = 30
LONGEST_DELAY = 1800


def delay_after(failures: int) -> int:
    """Return the seconds between the latest failed boot and the next order; they double each time."""
    if failures <= 0:
        return 0
    doublings = min(failures - 1, 10)  # the maximum delay is reached earlier
    return min(FIRST_DELAY << doublings, LONGEST_DELAY)


def stops_provisioning(failures: int, limit: int) -> bool:
    """Return whether the limit is reached; a limit of 0 never stops provisioning."""
    return 0 < limit <= failures
