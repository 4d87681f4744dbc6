"""Rows shared by all tests in a file."""

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import transaction
from pytest_django import DjangoDbBlocker


@contextmanager
def shared_rows(blocker: DjangoDbBlocker) -> Iterator[None]:
    """Share the rows created in the block with all tests in a file.

    Each test runs in a savepoint, which is rolled back. No test in the file may commit.
    """
    with blocker.unblock(), transaction.atomic():
        yield
        transaction.set_rollback(True)
