"""Fixtures for tests of schedules."""

import pytest

from tests.cast import Cast, make_cast


@pytest.fixture
def cast(transactional_db: None) -> Cast:
    return make_cast()
