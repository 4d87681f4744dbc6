"""Delay of orders after failed boots, and the end of provisioning."""

FIRST_DELAY = 30
LONGEST_DELAY = 1800


def delay_after(failures: int) -> int:
    """Return the seconds between a failed boot and the next order, doubled with each failure."""
    if failures <= 0:
        return 0
    doublings = min(failures - 1, 10)  # more doublings would exceed the maximum delay anyway
    return min(FIRST_DELAY << doublings, LONGEST_DELAY)


def stops_provisioning(failures: int, limit: int) -> bool:
    """Return True if the limit is reached. A limit of 0 never stops provisioning."""
    return 0 < limit <= failures
