"""Detect that a referenced row was deleted in the meantime."""

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import IntegrityError, connection, transaction
from psycopg.errors import ForeignKeyViolation

from berth.core.errors import NotFound


@contextmanager
def with_living_references(what: str) -> Iterator[None]:
    """One transaction. References are checked at its end, not at the commit of whatever is around it; from
    then on who would delete what they point at waits. Raises NotFound, which names `what`."""
    try:
        with transaction.atomic():
            yield
            connection.check_constraints()
    except IntegrityError as error:
        if isinstance(error.__cause__, ForeignKeyViolation):
            raise NotFound(f"{what} was deleted at the same moment.") from None
        raise
