"""Parse the values in trace rows. Errors contain the line and column."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import timezone
from typing import TypeVar

from berth.core.backports import parse_iso_time
from berth.core.problems import Problem, format_value
from scheduler.simulator.scenario.errors import ScenarioError

Row = Mapping[str, str]
Read = TypeVar("Read")
MAX_INTEGER = 10**12


def with_line_numbers(rows: Iterable[Row]) -> Iterator[tuple[int, Row]]:
    """Yield each row with its line number. The header is line 1."""
    yield from enumerate(rows, 2)


def parse_integer(line: int, row: Row, column: str, minimum: int = 0, default: int | None = None) -> int:
    text = (row.get(column) or "").strip()
    if not text and default is not None:
        return default
    value = _parse_column(
        line, row, column, lambda parse_text: math.floor(float(parse_text)), f"a number from {minimum}"
    )
    if not minimum <= value <= MAX_INTEGER:
        raise trace_error(line, column, "is out of range", text, f"{minimum} to {MAX_INTEGER}")
    return value


def parse_time(line: int, row: Row, column: str) -> int:
    """Parse a time into seconds since the epoch. Times without a time zone are in UTC."""
    at = _parse_column(line, row, column, parse_iso_time, "YYYY-MM-DD HH:MM:SS")
    return int((at if at.tzinfo else at.replace(tzinfo=timezone.utc)).timestamp())


def parse_text(line: int, row: Row, column: str) -> str:
    text = (row.get(column) or "").strip()
    if not text:
        raise trace_error(line, column, "is empty", "", "a name")
    return text


def trace_error(line: int, column: str, message: str, value: str, allowed: str) -> ScenarioError:
    return ScenarioError([Problem(f"line {line}, {column}", message, format_value(value), allowed)])


def _parse_column(line: int, row: Row, column: str, read: Callable[[str], Read], allowed: str) -> Read:
    text = (row.get(column) or "").strip()
    try:
        return read(text)
    except (ValueError, OverflowError):
        raise trace_error(line, column, "cannot be read", text, allowed) from None
