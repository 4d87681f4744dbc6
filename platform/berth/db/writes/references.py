"""Detect concurrent deletions of referenced rows."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from django.db import IntegrityError, connection, transaction
from psycopg.errors import ForeignKeyViolation, UniqueViolation

from berth.core.errors import NotFound, PreconditionFailed


def ensure_transaction() -> AbstractContextManager[object]:
    """Run the block in the current transaction or, outside of one, in a new one.

    There is no savepoint: an error after the first write must roll back the outer transaction.
    """
    return nullcontext() if connection.in_atomic_block else transaction.atomic()


@contextmanager
def check_foreign_keys(what: str, *, created: str | None = None) -> Iterator[None]:
    """Check foreign keys at the end of the block instead of at the commit.

    Raises NotFound if a referenced row is missing, and PreconditionFailed if another transaction has created
    the same row. The messages name these rows as `what` and `created`.
    """
    try:
        with transaction.atomic():
            yield
            connection.check_constraints()
    except IntegrityError as error:
        if isinstance(error.__cause__, ForeignKeyViolation):
            raise NotFound(f"{what} has been deleted. Reload and try again.") from None
        if created is not None and isinstance(error.__cause__, UniqueViolation):
            raise PreconditionFailed(
                f"Another user has created {created} in the meantime. Reload and try again."
            ) from None
        raise
