"""Rows shared by all tests in a file."""

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import transaction
from pytest_django import DjangoDbBlocker


@contextmanager
def kept_rows(blocker: DjangoDbBlocker) -> Iterator[None]:
    """Keep the rows created in the block until the block ends.

    Each test runs in a savepoint, so its own changes are undone. No test of the file may commit.
    """
    with blocker.unblock(), transaction.atomic():
        yield
        transaction.set_rollback(True)
