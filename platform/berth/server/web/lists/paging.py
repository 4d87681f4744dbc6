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
class Slice(Generic[M]):
    rows: list[M]
    sort: str
    next: str | None  # cursor of the next page, None on the last page
    previous: str | None


def slice_of(
    rows: QuerySet[M],
    columns: Mapping[str, str],
    *,
    sort: str,
    default: str,
    cursor: str = "",
    size: int = SIZE,
) -> Slice[M]:
    """Return one page of rows. `columns` maps sort keys to columns without nulls; "-" reverses a key."""
    if sort.removeprefix("-") not in columns:
        sort = default
    down, column = sort.startswith("-"), columns[sort.removeprefix("-")]
    mark = _parse_cursor(cursor, sort)
    backwards = mark is not None and mark[0] == "<"
    if mark is not None:
        try:
            rows = rows.filter(_beyond(column, mark[1], mark[2], downwards=down != backwards))
        except (ValidationError, ValueError, TypeError):
            mark, backwards = None, False
    turned = f"{'-' if down != backwards else ''}{sort.removeprefix('-')}"
    shown = list(ordered(rows, columns, turned)[: size + 1])
    more = len(shown) > size
    shown = shown[:size]
    if backwards:
        shown.reverse()
    if not shown:
        return Slice([], sort, None, None)
    return Slice(
        shown,
        sort,
        next=_cursor(">", sort, column, shown[-1]) if more or backwards else None,
        previous=_cursor("<", sort, column, shown[0]) if (more if backwards else mark is not None) else None,
    )


def ordered(rows: QuerySet[M], columns: Mapping[str, str], sort: str) -> QuerySet[M]:
    """Return all rows in page order."""
    column = columns[sort.removeprefix("-")]
    down = sort.startswith("-")
    return rows.order_by(*(F(name).desc() if down else F(name).asc() for name in (column, "pk")))


def _beyond(column: str, value: Any, key: Any, *, downwards: bool) -> Q:
    side = "lt" if downwards else "gt"
    return Q(**{f"{column}__{side}": value}) | Q(**{column: value, f"pk__{side}": key})


def _cursor(direction: str, sort: str, column: str, row: Model) -> str:
    value: Any = row
    for step in column.split("__"):
        value = getattr(value, step)
    text = json.dumps([direction, sort, value, str(row.pk)], default=lambda v: v.isoformat())
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def _parse_cursor(cursor: str, sort: str) -> tuple[str, Any, str] | None:
    """Return the position of a cursor, or None if it is invalid or belongs to another sort order."""
    try:
        direction, made_for, value, key = json.loads(
            base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
        )
    except (ValueError, TypeError, binascii.Error):
        return None
    if (
        direction not in ("<", ">")
        or made_for != sort
        or not isinstance(key, str)
        or isinstance(value, list | dict)
    ):
        return None
    return direction, value, key
