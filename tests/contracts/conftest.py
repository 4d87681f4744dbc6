"""One Ray cluster for all contract tests, stopped after the last test because it is never quite idle."""

from collections.abc import Iterator

import pytest

from tests.contracts.ray_cluster import RayCluster, ray_cluster


@pytest.fixture(scope="package")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RayCluster]:
    with ray_cluster(tmp_path_factory.mktemp("ray")) as running:
        yield running
