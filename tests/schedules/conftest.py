"""Fixtures for tests of schedules."""

from collections.abc import Iterator

import pytest

from berth.db import crash_points
from tests.cast import Cast, make_cast


@pytest.fixture
def cast(transactional_db: None) -> Cast:
    return make_cast()


@pytest.fixture(autouse=True)
def reset_crash_points() -> Iterator[None]:
    yield
    crash_points.set_listener(None)
