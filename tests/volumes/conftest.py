"""Fixtures for tests of volumes."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contracts.pods import LocalStage, enclosed_stage
from tests.volumes.object_store import ObjectStore, object_store


@pytest.fixture(scope="module")
def store() -> Iterator[ObjectStore]:
    with object_store() as store:
        yield store


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[LocalStage]:
    yield from enclosed_stage(tmp_path)
