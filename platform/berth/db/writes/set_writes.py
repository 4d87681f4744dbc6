"""Write many rows in a few queries. A rejected row does not prevent the other rows from being written."""

import logging
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from django.db import DatabaseError, InterfaceError, OperationalError, transaction
from django.db.models import Model

from berth.db.writes.moves import RowChange, change_rows, lock_keys

log = logging.getLogger(__name__)

T = TypeVar("T")


def write_with_bisection(items: Sequence[T], write: Callable[[Sequence[T]], object]) -> list[tuple[T, str]]:
    """Write all items together, and return the rejected ones with reasons.

    If the write fails, the rejected items are isolated by repeatedly splitting the items in half. Call this
    in a transaction. Until its last query has succeeded, `write` must change nothing but rows.
    """
    if not items:
        return []
    try:
        with transaction.atomic():
            write(items)
    except (OperationalError, InterfaceError):
        raise
    except (DatabaseError, AssertionError, LookupError, ValueError) as error:
        if len(items) == 1:
            # Keep only the first line, because the others contain values from the row.
            return [(items[0], str(error).splitlines()[0] if str(error) else repr(error))]
        middle = len(items) // 2
        return [*write_with_bisection(items[:middle], write), *write_with_bisection(items[middle:], write)]
    return []


def write_changes(model: type[Model], field: str, changes: Sequence[RowChange]) -> set[Any]:
    """Lock the rows in key order, and write each change by compare-and-set on `field`.

    Return the keys of the changed rows. Rejected changes are logged. Call this in a transaction.
    """
    lock_keys(model._default_manager.filter(pk__in=[change.pk for change in changes]))
    changed: set[Any] = set()
    rejected = write_with_bisection(changes, lambda part: changed.update(change_rows(model, field, part)))
    for change, reason in rejected:
        log.error("%s %s could not be written: %s", model._meta.verbose_name, change.pk, reason)
    return changed
