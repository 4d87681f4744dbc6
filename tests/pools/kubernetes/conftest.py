"""Fixtures for tests of pools on Kubernetes."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contracts.kubernetes.stage import FakeKubernetesStage, fake_kubernetes_stage


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[FakeKubernetesStage]:
    with fake_kubernetes_stage(tmp_path / "runtime") as stage:
        yield stage
