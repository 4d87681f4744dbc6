"""Columns of the admin site's lists."""

import functools
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import Any

from django.core.exceptions import FieldDoesNotExist
from django.db.models import DateTimeField, FloatField, IntegerField, Model
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.text import capfirst

from berth.server.web.numbers import NO_VALUE

Format = Callable[[Any], object]
EVENT_TIMES = ("at", "hour", "triggered_at")  # times of events, which admins compare with logs
DISTANT = timedelta(days=7)  # dates that are further away are shown in full, as in the application
UNITS = (("d", 86_400), ("h", 3600), ("min", 60), ("s", 1))


def format_columns(model: type[Model], columns: Iterable[Any]) -> list[Any]:
    """Replace columns of times and numbers with functions that format their values."""
    return [_format_column(model, column) if isinstance(column, str) else column for column in columns]


def column_name(column: Any) -> str:
    return column if isinstance(column, str) else str(column.__name__)


def format_time(at: datetime) -> SafeString:
    """Format a time to the second in the reader's time zone, without the year if it is the current year."""
    local = timezone.localtime(at)
    pattern = "%-d %b, %H:%M:%S" if local.year == timezone.localtime().year else "%-d %b %Y, %H:%M:%S"
    return _time_element(at, local.strftime(pattern), format_distance(at))


def format_age(at: datetime) -> SafeString:
    """Format a time relative to now, such as "16 min ago". The exact time appears on hover."""
    local = timezone.localtime(at)
    text = local.strftime("%-d %b %Y") if abs(timezone.now() - at) > DISTANT else format_distance(at)
    return _time_element(at, text, f"{local:%-d %b %Y, %H:%M:%S}, {local.tzinfo}")


def format_distance(at: datetime) -> str:
    """Format how far a time is from now, in the largest unit, such as "16 min ago" or "in 2 h"."""
    seconds = round((at - timezone.now()).total_seconds())
    if not seconds:
        return "just now"
    unit, size = next((unit, size) for unit, size in UNITS if abs(seconds) >= size)
    distance = f"{abs(seconds) // size} {unit}"
    return f"in {distance}" if seconds > 0 else f"{distance} ago"


def _time_element(at: datetime, text: str, title: str) -> SafeString:
    return format_html('<time datetime="{}" title="{}">{}</time>', at.isoformat(), title, text)


@functools.cache  # return the same function each time, because Django compares columns
def _format_column(model: type[Model], name: str) -> Any:
    try:
        field = model._meta.get_field(name)
    except FieldDoesNotExist:
        return name
    title = str(field.verbose_name) if hasattr(field, "verbose_name") else name
    if isinstance(field, DateTimeField) and name in EVENT_TIMES:
        # In append-only tables, rows sorted by ID are also sorted by time, and only the ID has an index.
        is_appended = list(model._meta.ordering or ())[:1] == ["-id"]
        return _column(name, title, format_time, order_field="id" if is_appended else name)
    if isinstance(field, DateTimeField):
        return _column(name, title, format_age)
    if isinstance(field, FloatField):
        return _column(name, title, lambda value: f"{value:,g}")
    if isinstance(field, IntegerField) and not field.primary_key:
        return _column(name, title, lambda value: f"{value:,}")
    return name


def _column(name: str, title: str, format_value: Format, *, order_field: str = "") -> Any:
    def column(row: Model) -> object:
        value = getattr(row, name)
        return NO_VALUE if value is None else format_value(value)

    column.__name__ = name  # used as the CSS class of the cell
    column.short_description = capfirst(title)  # type: ignore[attr-defined]
    column.admin_order_field = order_field or name  # type: ignore[attr-defined]
    return column
