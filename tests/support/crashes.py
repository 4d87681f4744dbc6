"""Simulated crashes of a process at crash points."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest

from berth.db.loops import crash_points


class Killed(BaseException):
    """Simulates kill -9. It is not an `Exception`, so no handler catches it."""


@contextmanager
def listening(listener: Callable[[str], None]) -> Iterator[None]:
    """Call the listener with the name of each crash point reached in the block."""
    crash_points.set_listener(listener)
    try:
        yield
    finally:
        crash_points.set_listener(None)


def killing_at(point: str) -> AbstractContextManager[None]:
    """Simulate kill -9 if the block reaches the crash point."""

    def kill(name: str) -> None:
        if name == point:
            raise Killed(name)

    return listening(kill)


@contextmanager
def killed_at(point: str) -> Iterator[None]:
    """Simulate kill -9 at the crash point, which the block must reach."""
    with killing_at(point), pytest.raises(Killed):
        yield
