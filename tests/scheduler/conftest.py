"""Fixture for scheduler tests."""

import pytest

from tests.cast import make_cast
from tests.scheduler.stage import Stage


@pytest.fixture
def stage(transactional_db: None) -> Stage:
    """Create two nodes with two GPUs each, and a quota of four GPUs for project vision."""
    made = Stage(make_cast())
    made.node(0)
    made.node(1)
    made.quota(made.cast.research, 4)
    made.quota(made.cast.vision, 4)
    return made
