"""Keyset pagination of long lists."""

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from django.core.exceptions import ValidationError
from django.db.models import F, Model, Q, QuerySet

M = TypeVar("M", bound=Model)
SIZE = 50


@dataclass(frozen=True)
class PageSlice(Generic[M]):
    rows: list[M]
    sort: str
    next: str | None  # cursor of the next page, or None on the last page
    previous: str | None


def load_slice(
    rows: QuerySet[M],
    columns: Mapping[str, str],
    *,
    sort: str,
    default: str,
    cursor: str = "",
    size: int = SIZE,
) -> PageSlice[M]:
    """Return one page of rows.

    `columns` maps sort keys to non-null columns. The prefix "-" reverses the order of a key.
    """
    if sort.removeprefix("-") not in columns:
        sort = default
    is_descending, column = sort.startswith("-"), columns[sort.removeprefix("-")]
    position = _parse_cursor(cursor, sort)
    is_backward = position is not None and position[0] == "<"
    if position is not None:
        try:
            rows = rows.filter(
                _filter_beyond(column, position[1], position[2], downwards=is_descending != is_backward)
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
        next=_cursor(">", sort, column, shown[-1]) if has_more or is_backward else None,
        previous=_cursor("<", sort, column, shown[0])
        if (has_more if is_backward else position is not None)
        else None,
    )


def sort_rows(rows: QuerySet[M], columns: Mapping[str, str], sort: str) -> QuerySet[M]:
    """Return all rows, sorted as on the pages of the list."""
    column = columns[sort.removeprefix("-")]
    is_descending = sort.startswith("-")
    return rows.order_by(*(F(name).desc() if is_descending else F(name).asc() for name in (column, "pk")))


def _filter_beyond(column: str, value: Any, key: Any, *, downwards: bool) -> Q:
    side = "lt" if downwards else "gt"
    return Q(**{f"{column}__{side}": value}) | Q(**{column: value, f"pk__{side}": key})


def _cursor(direction: str, sort: str, column: str, row: Model) -> str:
    value: Any = row
    for step in column.split("__"):
        value = getattr(value, step)
    text = json.dumps([direction, sort, value, str(row.pk)], default=lambda v: v.isoformat())
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def _parse_cursor(cursor: str, sort: str) -> tuple[str, Any, str] | None:
    """Return the position that a cursor encodes.

    Return None if the cursor is invalid or belongs to a different sort order.
    """
    try:
        direction, cursor_sort, value, key = json.loads(
            base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
        )
    except (ValueError, TypeError, binascii.Error):
        return None
    if (
        direction not in ("<", ">")
        or cursor_sort != sort
        or not isinstance(key, str)
        or isinstance(value, list | dict)
    ):
        return None
    return direction, value, key
