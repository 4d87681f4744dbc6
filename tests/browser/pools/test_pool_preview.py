"""Browser test for the preview in the form that creates pools."""

from collections.abc import Iterator
from typing import Any

import pytest

from pools.models import NodePool
from tests.browser.conftest import Open
from tests.browser.data.scene import Scene
from tests.browser.driver.chromium import NARROW, open_settled
from tests.browser.every_page.pages import OVERFLOW
from tests.fakes.kubernetes import FakeCluster, serve
from tests.pools.kubernetes.api_server.test_credentials import kubeconfig


@pytest.fixture
def cluster_url() -> Iterator[str]:
    cluster = FakeCluster()
    for number in range(3):
        cluster.add_node(f"gpu-{number}", gpus=8, labels={"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"})
    cluster.add_foreign_pod("theirs", "gpu-0", gpus=2)
    cluster.change_node("gpu-1", unschedulable=True)
    cluster.forbid("get", "pods/log")
    with serve(cluster) as url:
        yield url


@pytest.mark.heavy
@pytest.mark.parametrize(
    "options",
    [
        pytest.param({}, id="wide", marks=pytest.mark.heavy),
        pytest.param({"viewport": NARROW, "has_touch": True}, id="phone"),
    ],
)
def test_pool_form_tests_the_connection_before_the_pool_is_created(
    opened: Open, scene: Scene, cluster_url: str, options: dict[str, Any]
) -> None:
    with opened("ada", **options) as (page, faults):
        open_settled(page, "/node-pools/new")
        page.get_by_label("Name", exact=True).fill("prod")
        page.get_by_label("Provider", exact=True).select_option("kubernetes")
        page.get_by_label("Kubeconfig").fill(kubeconfig(server=cluster_url))
        page.get_by_role("button", name="Test connection").click()
        preview = page.get_by_role("region", name="Preview")
        assert "Usable nodes: 2 of 3, with 16 GPUs (14 free)" in preview.inner_text()
        assert "the node is cordoned in Kubernetes" in preview.inner_text()
        assert "The account may not get pods/log in all namespaces" in preview.inner_text()
        assert page.get_by_label("Name", exact=True).input_value() == "prod"
        assert page.evaluate(OVERFLOW) <= 0
        assert not NodePool.objects.filter(name="prod").exists()
        with page.expect_response("**/node-pools/new"):
            page.get_by_role("button", name="Create node pool").click()
        assert NodePool.objects.filter(name="prod").exists()
        assert faults == []
