"""Backoff after failed boots, and the limit at which provisioning stops."""

MIN_DELAY = 30
MAX_DELAY = 1800


def boot_retry_delay(failures: int) -> int:
    """Return the delay in seconds before the next launch request.

    The delay doubles with each failed boot, up to a maximum.
    """
    if failures <= 0:
        return 0
    doublings = min(failures - 1, 10)  # further doublings would exceed the maximum delay
    return min(MIN_DELAY << doublings, MAX_DELAY)


def should_stop_provisioning(failures: int, limit: int) -> bool:
    """Return whether the number of failed boots has reached the limit. A limit of 0 means no limit."""
    return 0 < limit <= failures
