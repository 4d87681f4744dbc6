"""Tests for the capacity that Berth may use on a cluster's nodes."""

from typing import Any

import pytest

from pools.kubernetes.nodes import RequestTotals, pod_requests, read_node
from pools.kubernetes.quantities import to_mebibytes, to_milli
from pools.kubernetes.settings import kubernetes_settings

GPU = "nvidia.com/gpu"
TAINTED = "the node has the taint"


def node(*taints: dict[str, str], ready: str = "True", **spec: Any) -> dict[str, Any]:
    conditions = [{"type": "Ready", "status": ready, "message": "kubelet stopped posting status"}]
    allocatable = {"cpu": "63500m", "memory": "527942364Ki", "pods": "110", GPU: "8"}
    return {
        "metadata": {"name": "gpu-1", "uid": "u-1", "labels": {"nvidia.com/gpu.product": "NVIDIA-H100"}},
        "spec": {**spec, "taints": list(taints)},
        "status": {"allocatable": allocatable, "conditions": conditions},
    }


def test_capacity_equals_the_allocatable_resources() -> None:
    read = read_node(node(), kubernetes_settings({}))
    assert read.allocatable == RequestTotals(63500, 515568, 8, 110)
    assert (read.gpu_model, read.obstacle) == ("NVIDIA-H100", "")


@pytest.mark.parametrize(
    ("taint", "tolerations", "obstacle"),
    [
        ({"key": "gpu", "value": "true", "effect": "NoSchedule"}, [], f"{TAINTED} gpu=true:NoSchedule"),
        ({"key": "gpu", "value": "true", "effect": "NoSchedule"}, [{"key": "gpu"}], ""),
        ({"key": "gpu", "value": "true", "effect": "NoSchedule"}, [{"key": "gpu", "value": "no"}],
         f"{TAINTED} gpu=true:NoSchedule"),
        ({"key": "gpu", "effect": "NoExecute"}, [{"key": "gpu", "effect": "NoSchedule"}],
         f"{TAINTED} gpu:NoExecute"),
        ({"key": "gpu", "effect": "PreferNoSchedule"}, [], ""),
    ],
)  # fmt: skip
def test_tainted_node_is_excluded_unless_the_pool_tolerates_the_taint(
    taint: dict[str, str], tolerations: list[dict[str, str]], obstacle: str
) -> None:
    assert read_node(node(taint), kubernetes_settings({"tolerations": tolerations})).obstacle == obstacle


def test_cordoned_and_unready_nodes_are_excluded_with_a_reason() -> None:
    settings = kubernetes_settings({})
    assert read_node(node(unschedulable=True), settings).obstacle == "the node is cordoned in Kubernetes"
    unready = read_node(node(ready="Unknown"), settings).obstacle
    assert unready == "the node is not ready: kubelet stopped posting status"


def test_pod_usage_matches_the_kubernetes_schedulers_accounting() -> None:
    def container(cpu: str, memory: str, **limits: str) -> dict[str, Any]:
        return {"resources": {"requests": {"cpu": cpu, "memory": memory}, "limits": limits}}

    spec = {
        "containers": [container("500m", "1Gi", **{GPU: "2"}), container("1", "100M")],
        "initContainers": [container("4", "10Mi")],
        "overhead": {"memory": "20Mi"},
    }
    assert pod_requests({"spec": spec, "status": {"phase": "Running"}}, GPU) == RequestTotals(
        4000, 1140, 2, 1
    )
    assert pod_requests({"spec": spec, "status": {"phase": "Succeeded"}}, GPU) == RequestTotals()


def test_resource_quantities_are_rounded_up() -> None:
    assert [to_milli(text) for text in ("1", "250m", "1n", "1.5", "2k")] == [1000, 250, 1, 1500, 2_000_000]
    assert to_mebibytes("1Gi") == 1024
    with pytest.raises(ValueError, match="is not a valid Kubernetes quantity"):
        to_milli("1 core")
