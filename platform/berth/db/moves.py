"""Compare-and-set changes of rows."""

from collections.abc import Collection, Sequence
from typing import Any, TypeVar

from django.db.models import Model

M = TypeVar("M", bound=Model)


def move(row: Model, field: str, *, expected: Collection[Any], to: Any, **also: Any) -> bool:
    """Set `field` and `also` if `field` still has an expected value; otherwise return False.

    The object in memory is updated only if the row was updated.
    """
    values = {field: to, **also}
    matching = type(row)._default_manager.filter(pk=row.pk, **{f"{field}__in": list(expected)})
    if matching.update(**values) == 0:
        return False
    for name, value in values.items():
        setattr(row, name, value)
    return True


def move_all(rows: Sequence[M], field: str, *, expected: Collection[Any], to: Any, **also: Any) -> list[M]:
    """Move many rows of one model in two statements. Return the moved rows in order.

    Call this function in a transaction: the rows stay locked until it ends.
    """
    if not rows:
        return []
    values, manager = {field: to, **also}, type(rows[0])._default_manager
    matching = manager.filter(pk__in=[row.pk for row in rows], **{f"{field}__in": list(expected)})
    locked = matching.select_for_update(of=("self",), no_key=True).order_by("pk")
    locked_ids = set(locked.values_list("pk", flat=True))
    manager.filter(pk__in=locked_ids).update(**values)
    moved = [row for row in rows if row.pk in locked_ids]
    for row in moved:
        for name, value in values.items():
            setattr(row, name, value)
    return moved
