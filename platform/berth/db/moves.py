"""Here we change a row only if it is still what we took it for."""
from collections.abc import Collection
from typing import Any

from django.db.models import Model


def move(row: Model, field: str, *, expected: Collection[Any], to: Any, **also: Any) -> bool:
    """Set `field` (and `also`) if it still has one of the expected values; False when somebody was faster.

    The object in hand is brought up to date only when the row was.
    """
    values = {field: to, **also}
    still = type(row)._default_manager.filter(pk=row.pk, **{f"{field}__in": list(expected)})
    if still.update(**values) == 0:
        return False
    for name, value in values.items():
        setattr(row, name, value)
    return True
