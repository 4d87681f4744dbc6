"""Fixtures for tests of isolated pods."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contracts.pods import LocalStage, enclosed_stage


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[LocalStage]:
    yield from enclosed_stage(tmp_path)
