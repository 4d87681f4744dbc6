"""A clock that tests control."""

from datetime import datetime, timedelta


class FixedClock:
    """A clock that moves only when `advance` is called."""

    def __init__(self, at: datetime) -> None:
        self._at = at

    def now(self) -> datetime:
        return self._at

    def advance(self, seconds: float) -> None:
        self._at += timedelta(seconds=seconds)
