"""Crashes of a process at crash points."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest

from berth.db import crash_points


class Killed(BaseException):
    """Simulates kill -9. It is not an `Exception`, so that no handler catches it."""


@contextmanager
def listening(listener: Callable[[str], None]) -> Iterator[None]:
    """Call the listener with the name of each crash point that the block reaches."""
    crash_points.set_listener(listener)
    try:
        yield
    finally:
        crash_points.set_listener(None)


def killing_at(point: str) -> AbstractContextManager[None]:
    """Kill the block if it reaches the crash point."""

    def kill(name: str) -> None:
        if name == point:
            raise Killed(name)

    return listening(kill)


@contextmanager
def killed_at(point: str) -> Iterator[None]:
    """Kill the block at the crash point, which it must reach."""
    with killing_at(point), pytest.raises(Killed):
        yield
