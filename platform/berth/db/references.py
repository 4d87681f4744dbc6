"""Detect that a referenced row was deleted in the meantime."""

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import IntegrityError, connection, transaction
from psycopg.errors import ForeignKeyViolation

from berth.core.errors import NotFound


@contextmanager
def with_living_references(what: str) -> Iterator[None]:
    """Run a transaction whose references are checked at its end, not at the commit of an outer one.

    From then on a deletion of the referenced rows waits for the commit. Raises NotFound, which names `what`.
    """
    try:
        with transaction.atomic():
            yield
            connection.check_constraints()
    except IntegrityError as error:
        if isinstance(error.__cause__, ForeignKeyViolation):
            raise NotFound(f"{what} was deleted at the same moment.") from None
        raise
