"""One Ray and one Slurm cluster for all contract tests, stopped after the last test."""

from collections.abc import Iterator

import pytest

from tests.contracts.kubernetes.cluster import missing_parts, real_cluster
from tests.contracts.ray.cluster import RayCluster, ray_cluster
from tests.contracts.slurm.cluster import SlurmCluster, missing_programs, slurm_cluster
from tests.contracts.slurm.rest import SlurmRestServer, allow_tokens, installed_versions, missing_rest


@pytest.fixture(scope="package")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RayCluster]:
    with ray_cluster(tmp_path_factory.mktemp("ray")) as running:
        yield running


@pytest.fixture(scope="package")
def slurm() -> Iterator[SlurmCluster]:
    missing = missing_programs()
    if missing:
        pytest.skip(f"needs {', '.join(missing)}: run `make slurm` as root")
    with slurm_cluster(allow_tokens) as running:
        yield running


@pytest.fixture(scope="package")
def slurmrestd(slurm: SlurmCluster) -> dict[str, SlurmRestServer]:
    """Return a slurmrestd server for each version of its API. The servers stop with the cluster."""
    if missing := missing_rest():
        pytest.skip(f"needs {', '.join(missing)}: run `make slurm` as root")
    servers = {version: SlurmRestServer(slurm, (version,)) for version in installed_versions()}
    for server in servers.values():
        server.start()
    return servers


@pytest.fixture(scope="package")
def kubeconfig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if missing := missing_parts():
        pytest.skip(f"NO REAL KUBERNETES: {missing}")
    with real_cluster(tmp_path_factory.mktemp("cluster")) as text:
        yield text
