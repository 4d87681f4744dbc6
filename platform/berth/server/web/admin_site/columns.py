"""Columns of the admin site's lists."""

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any

from django.core.exceptions import FieldDoesNotExist
from django.db.models import DateTimeField, FloatField, IntegerField, Model
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.text import capfirst

from berth.server.web.numbers import NO_VALUE

Format = Callable[[Any], object]


def format_columns(model: type[Model], columns: Iterable[Any]) -> list[Any]:
    """Replace columns of times and numbers with functions that format their values."""
    return [_format_column(model, column) if isinstance(column, str) else column for column in columns]


def column_name(column: Any) -> str:
    return column if isinstance(column, str) else str(column.__name__)


def format_time(at: datetime) -> SafeString:
    """Format a time to the second in the reader's time zone, without the year if it is the current year."""
    local = timezone.localtime(at)
    pattern = "%-d %b, %H:%M:%S" if local.year == timezone.localtime().year else "%-d %b %Y, %H:%M:%S"
    return format_html('<time datetime="{}">{}</time>', at.isoformat(), local.strftime(pattern))


def _format_column(model: type[Model], name: str) -> Any:
    try:
        field = model._meta.get_field(name)
    except FieldDoesNotExist:
        return name
    if isinstance(field, DateTimeField):
        return _column(name, str(field.verbose_name), format_time)
    if isinstance(field, FloatField):
        return _column(name, str(field.verbose_name), lambda value: f"{value:,g}")
    if isinstance(field, IntegerField) and not field.primary_key:
        return _column(name, str(field.verbose_name), lambda value: f"{value:,}")
    return name


def _column(name: str, title: str, format_value: Format) -> Any:
    def column(row: Model) -> object:
        value = getattr(row, name)
        return NO_VALUE if value is None else format_value(value)

    column.__name__ = name  # used as the CSS class of the cell
    column.short_description = capfirst(title)  # type: ignore[attr-defined]
    column.admin_order_field = name  # type: ignore[attr-defined]
    return column
