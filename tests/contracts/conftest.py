"""Here one Ray cluster is started for all tests that need one, when the first of them does."""
from collections.abc import Iterator

import pytest

from tests.contracts.ray_cluster import RayCluster, ray_cluster


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RayCluster]:
    with ray_cluster(tmp_path_factory.mktemp("ray")) as running:
        yield running
