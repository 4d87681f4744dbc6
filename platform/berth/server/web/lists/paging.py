"""Keyset pagination of long lists."""

import base64
import binascii
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias, TypeVar

from django.core.exceptions import ValidationError
from django.db.models import F, Model, Q, QuerySet

M = TypeVar("M", bound=Model)
SortColumns: TypeAlias = Mapping[str, str | tuple[str, ...]]
SIZE = 50


@dataclass(frozen=True)
class PageSlice(Generic[M]):
    rows: list[M]
    sort: str
    next: str | None  # cursor of the next page, or None on the last page
    previous: str | None


def load_slice(
    rows: QuerySet[M],
    columns: SortColumns,
    *,
    sort: str,
    default: str,
    cursor: str = "",
    size: int = SIZE,
) -> PageSlice[M]:
    """Return one page of rows.

    `columns` maps sort keys to non-null columns. The prefix "-" reverses the order of a key. If a key has
    several columns, each one sorts the rows that are equal in the columns before it.
    """
    if sort.removeprefix("-") not in columns:
        sort = default
    is_descending, names = sort.startswith("-"), _column_names(columns, sort)
    position = _parse_cursor(cursor, sort, len(names))
    is_backward = position is not None and position[0] == "<"
    if position is not None:
        try:
            rows = rows.filter(
                _past_cursor_condition(names, position[1], downwards=is_descending != is_backward)
            )
        except (ValidationError, ValueError, TypeError):
            position, is_backward = None, False
    page_sort = f"{'-' if is_descending != is_backward else ''}{sort.removeprefix('-')}"
    shown = list(sort_rows(rows, columns, page_sort)[: size + 1])
    has_more = len(shown) > size
    shown = shown[:size]
    if is_backward:
        shown.reverse()
    if not shown:
        return PageSlice([], sort, None, None)
    return PageSlice(
        shown,
        sort,
        next=_cursor(">", sort, names, shown[-1]) if has_more or is_backward else None,
        previous=_cursor("<", sort, names, shown[0])
        if (has_more if is_backward else position is not None)
        else None,
    )


def sort_rows(rows: QuerySet[M], columns: SortColumns, sort: str) -> QuerySet[M]:
    """Return all rows, sorted as on the pages of the list."""
    names, is_descending = _column_names(columns, sort), sort.startswith("-")
    return rows.order_by(*(F(name).desc() if is_descending else F(name).asc() for name in names))


def _column_names(columns: SortColumns, sort: str) -> tuple[str, ...]:
    """Return the columns that sort the rows. The last one is unique."""
    names = columns[sort.removeprefix("-")]
    return (*((names,) if isinstance(names, str) else names), "pk")


def _past_cursor_condition(names: Sequence[str], values: Sequence[Any], *, downwards: bool) -> Q:
    side, beyond, equal = "lt" if downwards else "gt", Q(), Q()
    for name, value in zip(names, values, strict=True):
        beyond |= equal & Q(**{f"{name}__{side}": value})
        equal &= Q(**{name: value})
    return beyond


def _cursor(direction: str, sort: str, names: Sequence[str], row: Model) -> str:
    values = [*(_value(row, name) for name in names[:-1]), str(row.pk)]
    text = json.dumps([direction, sort, *values], default=lambda value: value.isoformat())
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def _value(row: Model, name: str) -> Any:
    value: Any = row
    for step in name.split("__"):
        value = getattr(value, step)
    return value


def _parse_cursor(cursor: str, sort: str, columns: int) -> tuple[str, list[Any]] | None:
    """Return the cursor's direction and one value per sort column.

    Return None if the cursor is invalid or belongs to a different order.
    """
    try:
        direction, cursor_sort, *values = json.loads(
            base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
        )
    except (ValueError, TypeError, binascii.Error):
        return None
    if (
        direction not in ("<", ">")
        or cursor_sort != sort
        or len(values) != columns
        or not isinstance(values[-1], str)
        or any(isinstance(value, list | dict) for value in values)
    ):
        return None
    return direction, values
