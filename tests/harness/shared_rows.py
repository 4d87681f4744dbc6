"""Rows shared by all tests in a file."""

from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy

import pytest
from django.db import transaction
from pytest_django import DjangoDbBlocker

from tests.cast import Cast, make_cast


@contextmanager
def shared_rows(blocker: DjangoDbBlocker) -> Iterator[None]:
    """Share the rows created in the block with all tests in a file.

    Each test runs in a savepoint, which is rolled back. No test in the file may commit.
    """
    with blocker.unblock(), transaction.atomic():
        yield
        transaction.set_rollback(True)


@pytest.fixture(scope="module")
def shared_cast(
    request: pytest.FixtureRequest, django_db_setup: None, django_db_blocker: DjangoDbBlocker
) -> Iterator[Cast | None]:
    """Create the cast for all tests in a file. Return None if a test commits or needs an empty database."""
    tests = [item for item in request.session.items if item.path == request.path]
    if not all(_can_share(item) for item in tests):
        yield None
        return
    with shared_rows(django_db_blocker):
        yield make_cast()


def _can_share(item: pytest.Item) -> bool:
    fixtures = getattr(item, "fixturenames", ())
    mark = item.get_closest_marker("django_db")
    if "transactional_db" in fixtures or (mark is not None and mark.kwargs.get("transaction")):
        return False
    return "cast" in fixtures or ("db" not in fixtures and mark is None)


@pytest.fixture
def cast(shared_cast: Cast | None, db: None) -> Cast:
    """Return the users of every role, with departments, projects and a pool, which the test may change."""
    return make_cast() if shared_cast is None else deepcopy(shared_cast)
