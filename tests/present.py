"""A check that an optional value is set."""

from typing import TypeVar

Value = TypeVar("Value")


def present(value: Value | None) -> Value:
    """Return the value, which must not be None."""
    assert value is not None
    return value
