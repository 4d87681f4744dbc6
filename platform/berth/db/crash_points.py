"""Named crash points between two steps, where tests stop the process."""

from collections.abc import Callable

from django.db import connection

_listener: Callable[[str], None] | None = None


def crash_point(name: str) -> None:
    """Does nothing, except under a test that listens."""
    if _listener is not None:
        _listener(name)


def listen(listener: Callable[[str], None] | None) -> None:
    global _listener  # noqa: PLW0603 - one process, one scheduler, one listener
    _listener = listener


def outside_transactions() -> None:
    """Asked before a machine is called: that may take long, and cannot be rolled back."""
    assert not connection.in_atomic_block, "no machine is called inside a transaction"
