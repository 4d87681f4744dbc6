"""Detect concurrent deletions of referenced rows."""

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import IntegrityError, connection, transaction
from psycopg.errors import ForeignKeyViolation

from berth.core.errors import NotFound


@contextmanager
def checked_references(what: str) -> Iterator[None]:
    """Run a transaction that checks its foreign keys when it ends, not when the outer transaction commits.

    After the check, any deletion of the referenced rows waits for the commit. Raises NotFound for `what` if a
    referenced row is missing.
    """
    try:
        with transaction.atomic():
            yield
            connection.check_constraints()
    except IntegrityError as error:
        if isinstance(error.__cause__, ForeignKeyViolation):
            raise NotFound(f"{what} has been deleted.") from None
        raise
