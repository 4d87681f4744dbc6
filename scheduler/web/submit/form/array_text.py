"""Convert the values of a document's array section to form field text and back."""

import math
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from berth.core.spec.sections.arrays import parse_array_notation, parse_indexes
from berth.documents import edit_text
from berth.documents.edits import ABSENT
from berth.documents.values import Location, value_at
from scheduler.web.submit.form.field_kinds import DECIMAL, INTEGER, FieldKind, InvalidFieldText

TASKS_ALLOWED = "a number such as 30, or indexes and ranges such as 0-29 or 1, 5, 10-90:10"
MATRIX_LINE = "a variable with its values, such as LR=0.1, 0.01"
ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.ASCII | re.DOTALL)
BOOLEANS = {"true": True, "false": False}
DECIMAL_BITS_MAX = 1024  # Python does not convert much larger integers to decimal digits


def _format_tasks(value: Any, written: str | None) -> str | None:
    if not isinstance(value, list):
        return None if isinstance(value, dict) else "" if value is None else written or str(value)
    if any(isinstance(part, bool) or not isinstance(part, int | str) for part in value):
        return None
    return ", ".join(map(str, value))


def _parse_tasks(text: str, _: Any) -> Any:
    """Parse a plain number as the number of tasks, and other text as a list of indexes and ranges."""
    text = text.strip()
    if not text or INTEGER.fullmatch(text):
        return int(text) if text else ABSENT
    try:
        if limit := parse_array_notation(text).get("max_running"):
            tasks = text.partition("%")[0].strip()
            raise InvalidFieldText(f"Enter {tasks} here and {limit} in Max running tasks", text, "")
        parts = parse_indexes(text)
    except ValueError as error:
        message = "is neither a number of tasks nor a list of indexes"
        raise InvalidFieldText(message, str(error)[:80], TASKS_ALLOWED) from None
    return [int(part) if part.isdigit() else part for part in parts]


def _format_parameter(value: Any) -> str:
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > DECIMAL_BITS_MAX:
        return hex(value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def _parse_parameter(text: str) -> Any:
    if INTEGER.fullmatch(text):
        return int(text)
    if DECIMAL.fullmatch(text) and str(float(text)) == text:
        return float(text)
    return BOOLEANS.get(text, text)


def _format_matrix(value: Any, written: str | None) -> str | None:
    if value is None:
        return ""
    if not isinstance(value, Mapping):
        return None
    lines = []
    for name, values in value.items():
        texts = [_format_parameter(one) for one in (values if isinstance(values, list) else [values])]
        lines.append(f"{name}={', '.join(texts)}")
        if ASSIGNMENT.fullmatch(lines[-1]) is None or _split_values(lines[-1].partition("=")[2]) != texts:
            return None
    return "\n".join(lines)


def _parse_matrix(text: str, _: Any) -> Any:
    matrix: dict[str, list[Any]] = {}
    for line in filter(None, map(str.strip, text.split("\n"))):
        name, sign, values = line.partition("=")
        if not sign or not name.strip():
            raise InvalidFieldText("is not a valid variable", line[:80], MATRIX_LINE)
        if name.strip() in matrix:
            raise InvalidFieldText("is set twice", name.strip()[:80], "unique names")
        matrix[name.strip()] = [_parse_parameter(value) for value in _split_values(values)]
    return matrix or ABSENT


def _split_values(text: str) -> list[str]:
    return [value for value in map(str.strip, text.split(",")) if value and "\n" not in value]


def _format_values(value: Any, written: str | None) -> str | None:
    if value is None:
        return ""
    if not isinstance(value, list):
        return None
    lines = [_format_task_values(each) for each in value]
    return None if None in lines else "\n".join(line for line in lines if line)


def _format_task_values(value: Any) -> str | None:
    """Return the line for one task, or None if the line could not be parsed to the same values."""
    if isinstance(value, Mapping):
        texts = {str(name): _format_parameter(one) for name, one in value.items()}
        line = " ".join(f"{name}={shlex.quote(text)}" for name, text in texts.items())
    else:
        line = _format_parameter(value)
        texts = {"": line}
    return line if "\n" not in line and line == line.strip() and _split_task(line) == texts else None


def _split_task(line: str) -> dict[str, str]:
    """Return the variables of a line such as `LR=0.1 DEPTH=2`, or other text under the key ""."""
    try:
        pairs = [ASSIGNMENT.fullmatch(word) for word in shlex.split(line)]
    except ValueError:
        return {"": line}
    named = {pair[1]: pair[2] for pair in pairs if pair is not None}
    return named if named and len(named) == len(pairs) else {"": line}


def _parse_values(text: str, _: Any) -> Any:
    tasks = [_split_task(line) for line in filter(None, map(str.strip, text.split("\n")))]
    return [
        _parse_parameter(task[""]) if "" in task else {name: _parse_parameter(task[name]) for name in task}
        for task in tasks
    ] or ABSENT


TASKS = FieldKind("input", _format_tasks, _parse_tasks)
MATRIX = FieldKind("lines", _format_matrix, _parse_matrix)
VALUES = FieldKind("lines", _format_values, _parse_values)


def count_parameter_sets(data: Mapping[str, Any]) -> int:
    """Return the number of tasks that the document's parameters define, or 0 if there are none."""
    matrix, values = (value_at(data, ("array", key)) for key in ("matrix", "values"))
    if isinstance(matrix, Mapping) and matrix:
        return math.prod(len(each) if isinstance(each, list) else 1 for each in matrix.values())
    return len(values) if isinstance(values, list) else 0


def write_matrix(text: str, at: Location, matrix: Any, data: Mapping[str, Any], order: Sequence[str]) -> str:
    """Return the document with the matrix set at a location, each list of values on one line.

    Raises CannotEdit if the change cannot be made in place.
    """
    before = value_at(data, at)
    names = list(before) if isinstance(before, Mapping) else []
    is_in_order = matrix is not ABSENT and [
        *(name for name in names if name in matrix),
        *(name for name in matrix if name not in names),
    ] == list(matrix)
    if not is_in_order:
        text, names = edit_text(text, at, order=order), []
    if matrix is ABSENT:
        return text
    for name in matrix:
        if name not in names:
            text = edit_text(text, (*at, name), "", order=order)  # the list then replaces it on the same line
    return edit_text(text, at, matrix, order=order)
