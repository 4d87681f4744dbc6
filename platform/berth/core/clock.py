"""The only source of the current time."""

from datetime import datetime, timezone
from typing import Protocol


class Clock(Protocol):
    def now(self) -> datetime:
        """Return the current time in UTC, with its time zone."""


class SystemClock:
    def now(self) -> datetime:
        return datetime.now(timezone.utc)
