"""Create unsaved model instances about four times as fast as with `Model(**kwargs)`."""

from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar, cast

from django.db.models import Model

M = TypeVar("M", bound=Model)
Defaults = list[tuple[str, Callable[[], Any] | None, Any]]


def new_row(model: type[M], **values: Any) -> M:
    """Return an unsaved row. Keys are column attributes, such as `project_id` instead of `project`.

    Missing values are set to the model's defaults. Raises TypeError for an unknown key.
    """
    arguments = [
        values.pop(name) if name in values else constant if default is None else default()
        for name, default, constant in _defaults(model)
    ]
    if values:
        raise TypeError(f"{model.__name__} has no column named {min(values)}")
    return model(*arguments)


@cache
def _defaults(model: type[Model]) -> Defaults:
    """Return each column's attribute name and its default, which is a function or a constant."""
    return [_default(cast("Any", field)) for field in model._meta.concrete_fields]


def _default(field: Any) -> tuple[str, Callable[[], Any] | None, Any]:
    if field.has_default() and callable(field.default):
        return field.attname, field.default, None
    return field.attname, None, field.get_default()
