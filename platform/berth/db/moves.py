"""Compare-and-set updates of rows."""

from collections.abc import Collection, Sequence
from typing import Any, TypeVar

from django.db.models import Model

M = TypeVar("M", bound=Model)


def compare_and_set(row: Model, field: str, *, expected: Collection[Any], to: Any, **changes: Any) -> bool:
    """Set `field` and `changes` if `field` still has an expected value. Return whether the row was updated.

    The object in memory changes only if the row was updated.
    """
    values = {field: to, **changes}
    matching = type(row)._default_manager.filter(pk=row.pk, **{f"{field}__in": list(expected)})
    if matching.update(**values) == 0:
        return False
    for name, value in values.items():
        setattr(row, name, value)
    return True


def compare_and_set_all(
    rows: Sequence[M], field: str, *, expected: Collection[Any], to: Any, **changes: Any
) -> list[M]:
    """Update many rows of one model in two statements. Return the updated rows in order.

    Call this function in a transaction. The rows stay locked until the transaction ends.
    """
    if not rows:
        return []
    values, manager = {field: to, **changes}, type(rows[0])._default_manager
    matching = manager.filter(pk__in=[row.pk for row in rows], **{f"{field}__in": list(expected)})
    locked = matching.select_for_update(of=("self",), no_key=True).order_by("pk")
    locked_ids = set(locked.values_list("pk", flat=True))
    manager.filter(pk__in=locked_ids).update(**values)
    moved = [row for row in rows if row.pk in locked_ids]
    for row in moved:
        for name, value in values.items():
            setattr(row, name, value)
    return moved
