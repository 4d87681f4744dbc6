"""Fixtures shared by the tests of a module: a registry and a real Kubernetes cluster."""

from collections.abc import Iterator

import pytest

from pools.kubernetes.api_server.api import Api
from pools.kubernetes.api_server.credentials import parse_kubeconfig
from tests.contracts.kubernetes.cluster import missing_parts, real_cluster, set_gpus, with_shipped_role
from tests.images.registry import Registry, missing_programs, running_registry
from tests.journeys.on_kubernetes.prod import Prod


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    if missing := missing_programs():
        pytest.skip(f"not installed: {', '.join(missing)}")
    with running_registry(tmp_path_factory.mktemp("registry")) as running:
        yield running


@pytest.fixture(scope="module")
def prod(tmp_path_factory: pytest.TempPathFactory, registry: Registry) -> Iterator[Prod]:
    if missing := missing_parts():
        pytest.skip(f"NO REAL KUBERNETES: {missing}")
    registry.push("vision/train", tag="1", Env=["PATH=/bin"])
    with real_cluster(tmp_path_factory.mktemp("cluster")) as kubeconfig:
        for node in ("node-1", "node-2"):
            set_gpus(kubeconfig, node, 3)
        config = tmp_path_factory.mktemp("kubeconfig") / "config"
        config.write_text(with_shipped_role(kubeconfig))
        workspaces = tmp_path_factory.mktemp("workspaces")
        api = Api(parse_kubeconfig(kubeconfig))
        prod = Prod(kubeconfig, api, config, f"{registry.address}/vision/train:1", workspaces)
        prod.add_foreign_pod("theirs", "node-2")
        yield prod
        api.delete("/api/v1/namespaces/default/pods/theirs", 0)
        for namespace in api.list("/api/v1/namespaces")[0]:
            if namespace["metadata"]["name"].startswith("berth-"):
                api.delete(f"/api/v1/namespaces/{namespace['metadata']['name']}")
        api.close()
