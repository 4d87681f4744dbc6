"""Keyset pagination that stays stable while rows are added and removed."""

import base64
import binascii
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from django.core.exceptions import FieldError, ValidationError
from django.db.models import F, Field, Model, OrderBy, Q, QuerySet
from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from berth.core.errors import Invalid
from berth.core.problems import Problem
from berth.server.api.requests import ListQuery

R = TypeVar("R", bound=Model)


@dataclass(frozen=True, slots=True)
class Order:
    """Sort order by non-null columns, all ascending or all descending. The last column must be unique."""

    name: str
    columns: tuple[str, ...]
    is_descending: bool = False
    computed_columns: "Mapping[str, Field[Any, Any]]" = field(default_factory=dict)

    def order_by_expressions(self) -> list[OrderBy]:
        return [F(column).desc() if self.is_descending else F(column).asc() for column in self.columns]


NEWEST = Order("newest", ("id",), is_descending=True)


def page(
    rows: QuerySet[R], query: ListQuery, order: Order, present: Callable[[Sequence[R]], list[Any]]
) -> dict[str, Any]:
    """Return a page of rows after the cursor, with the next page's cursor or None."""
    if query.cursor is not None:
        rows = rows.filter(_filter_after(order, _parse_cursor(query.cursor, order, rows.model)))
    fetched = list(rows.order_by(*order.order_by_expressions())[: query.limit + 1])
    items = fetched[: query.limit]
    next_cursor = _encode_cursor(order, items[-1]) if len(fetched) > query.limit else None
    return {"items": present(items), "next": next_cursor}


def filter_by(rows: QuerySet[R], **conditions: Any) -> QuerySet[R]:
    """Return the rows that match every condition whose value is not None."""
    return rows.filter(**{column: value for column, value in conditions.items() if value is not None})


def map_rows(present: Callable[[R], Any]) -> Callable[[Sequence[R]], list[Any]]:
    """Turn a function that renders one row into a function that renders a page of rows."""
    return lambda rows: [present(row) for row in rows]


def _filter_after(order: Order, at: Sequence[Any]) -> Q:
    """Return a filter for the rows after `at`. Its bound on the first column lets PostgreSQL use an index."""
    step = "lt" if order.is_descending else "gt"
    condition = Q(**{f"{order.columns[0]}__{step}e": at[0]})
    beyond = Q()
    for index, column in enumerate(order.columns):
        same = dict(zip(order.columns[:index], at[:index], strict=True))
        beyond |= Q(**same, **{f"{column}__{step}": at[index]})
    return condition & beyond


def _encode_cursor(order: Order, row: Model) -> str:
    values = [to_jsonable_python(_column_value(row, column)) for column in order.columns]
    text = json.dumps([order.name, *values], separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def _column_value(row: Any, column: str) -> Any:
    for name in column.split("__"):
        row = getattr(row, name)
    return row


def _parse_cursor(cursor: str, order: Order, model: type[Model]) -> list[Any]:
    try:
        name, *values = json.loads(
            base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        )
        if name != order.name or len(values) != len(order.columns):
            raise ValueError
        return [
            (order.computed_columns.get(column) or _model_field(model, column)).clean(value, None)
            for column, value in zip(order.columns, values, strict=True)
        ]
    except (ValueError, TypeError, binascii.Error, ValidationError, RecursionError, FieldError):
        allowed = "the `next` value of a page with the same sort order and filters"
        raise Invalid([Problem("cursor", "is not a valid cursor for this list", "", allowed)]) from None


def _model_field(model: type[Model], column: str) -> Any:
    *path, last = column.split("__")
    for name in path:
        model = model._meta.get_field(name).related_model  # type: ignore[assignment]
    return model._meta.get_field(last)


class Page(BaseModel):
    """OpenAPI schema for one page of a list."""

    items: list[Any]
    next: str | None
