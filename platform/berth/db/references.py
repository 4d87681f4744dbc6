"""Detect that a referenced row was deleted in the meantime."""

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import IntegrityError, connection, transaction
from psycopg.errors import ForeignKeyViolation

from berth.core.errors import NotFound


@contextmanager
def with_living_references(what: str) -> Iterator[None]:
    """Run a transaction, and check its references at its end rather than at the outer commit.

    From then on, a deletion of the referenced rows waits for the commit. Raises NotFound for `what`.
    """
    try:
        with transaction.atomic():
            yield
            connection.check_constraints()
    except IntegrityError as error:
        if isinstance(error.__cause__, ForeignKeyViolation):
            raise NotFound(f"{what} was deleted at the same moment.") from None
        raise
