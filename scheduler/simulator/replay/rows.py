"""Parse values in trace rows and report errors by line and column."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import TypeVar

from berth.core.problems import Problem, shown
from scheduler.simulator.scenario.errors import ScenarioError

Row = Mapping[str, str]
Read = TypeVar("Read")
MOST = 10**12


def numbered(rows: Iterable[Row]) -> Iterator[tuple[int, Row]]:
    """Yield each row with its line number; the header is line 1."""
    yield from enumerate(rows, 2)


def whole(line: int, row: Row, column: str, least: int = 0, default: int | None = None) -> int:
    text = (row.get(column) or "").strip()
    if not text and default is not None:
        return default
    value = _read(line, row, column, lambda word: math.floor(float(word)), f"a number from {least}")
    if not least <= value <= MOST:
        raise refusal(line, column, "is out of range", text, f"{least} to {MOST}")
    return value


def moment(line: int, row: Row, column: str) -> int:
    """Return seconds since the epoch. Times without a time zone are read as UTC."""
    at = _read(line, row, column, datetime.fromisoformat, "YYYY-MM-DD HH:MM:SS")
    return int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp())


def word(line: int, row: Row, column: str) -> str:
    text = (row.get(column) or "").strip()
    if not text:
        raise refusal(line, column, "is empty", "", "a name")
    return text


def refusal(line: int, column: str, message: str, value: str, allowed: str) -> ScenarioError:
    return ScenarioError([Problem(f"line {line}, {column}", message, shown(value), allowed)])


def _read(line: int, row: Row, column: str, read: Callable[[str], Read], allowed: str) -> Read:
    text = (row.get(column) or "").strip()
    try:
        return read(text)
    except (ValueError, OverflowError):
        raise refusal(line, column, "cannot be read", text, allowed) from None
