"""One Ray cluster, started by the first test that needs it."""

from collections.abc import Iterator

import pytest

from tests.contracts.ray_cluster import RayCluster, ray_cluster


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RayCluster]:
    with ray_cluster(tmp_path_factory.mktemp("ray")) as running:
        yield running
