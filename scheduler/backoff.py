"""When an evicted or failed workload may start again."""

from datetime import datetime, timedelta

from scheduler.engine.backoff import backoff_seconds


def until(now: datetime, times: int) -> datetime:
    """`times` counts this one, from 1."""
    return now + timedelta(seconds=backoff_seconds(times))
