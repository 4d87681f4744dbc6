"""Named points between steps at which a test can stop the process."""

from collections.abc import Callable

from django.db import connection

_listener: Callable[[str], None] | None = None


def crash_point(name: str) -> None:
    """Let a test stop the process at this point. Do nothing if no test is listening."""
    if _listener is not None:
        _listener(name)


def set_listener(listener: Callable[[str], None] | None) -> None:
    global _listener  # noqa: PLW0603 - a process has only one listener
    _listener = listener


def assert_no_transaction() -> None:
    """Assert that no transaction is open, because remote calls may be slow and cannot be rolled back."""
    assert not connection.in_atomic_block, "remote call inside a transaction"
