"""Tests for pool previews: over REST, in the form and with an Idempotency-Key."""

from collections.abc import Iterator
from typing import Any

import pytest
from django.test import Client

from pools.models import NodePool
from tests.api.conftest import Caller
from tests.cast import Cast
from tests.fakes.kubernetes import FakeCluster, serve
from tests.pools.kubernetes.api_server.test_credentials import kubeconfig

PATH = "node-pools?dry_run=true"


@pytest.fixture
def cluster() -> FakeCluster:
    cluster = FakeCluster()
    for name in ("a", "b"):
        cluster.add_node(name, gpus=4, labels={"nvidia.com/gpu.product": "H100"})
    cluster.add_foreign_pod("theirs", "a", gpus=1)
    cluster.change_node("b", unschedulable=True)
    return cluster


@pytest.fixture
def values(cluster: FakeCluster) -> Iterator[dict[str, Any]]:
    with serve(cluster) as url:
        yield {
            "name": "prod", "provider": "kubernetes", "nodes": 2, "gpus_per_node": 4,
            "kubeconfig": kubeconfig(server=url),
        }  # fmt: skip


def test_dry_run_shows_nodes_and_creates_nothing(cast: Cast, alice: Caller, values: dict[str, Any]) -> None:
    answer = alice.post(PATH, values)
    preview = answer.json()
    assert answer.status_code == 200
    assert preview["source"].startswith("Kubernetes 1.30.0 at http://127.0.0.1:")
    first, second = preview["nodes"]
    assert (first["name"], first["gpu_model"], first["obstacle"]) == ("a", "H100", None)
    assert (first["total"]["gpu"], first["free"]["gpu"]) == (4, 3)
    assert second["obstacle"] == "the node is cordoned in Kubernetes"
    assert (preview["nodes_total"], preview["nodes_usable"], preview["free"]["gpu"]) == (2, 1, 3)
    assert preview["findings"] == [
        {
            "severity": "warning",
            "message": "The pool starts with 2 nodes, but only 1 can be used.",
            "remedy": "",
        }
    ]
    assert not NodePool.objects.filter(name="prod").exists()


@pytest.mark.heavy
def test_dry_run_reports_an_unresponsive_cluster_as_an_error(
    cast: Cast, alice: Caller, values: dict[str, Any], cluster: FakeCluster
) -> None:
    cluster.is_down = True
    preview = alice.post(PATH, values).json()
    (finding,) = preview["findings"]
    assert finding["severity"] == "error"
    assert "cannot be reached" in finding["message"]
    assert preview["nodes"] == []


@pytest.mark.heavy
def test_dry_run_rejects_the_same_values_as_creation(
    cast: Cast, alice: Caller, values: dict[str, Any]
) -> None:
    for changes, path in (
        ({"name": "local"}, "name"),
        ({"provider_settings": {"context": "other"}}, "provider_settings.context"),
        ({"gpus_per_node": -1}, "gpus_per_node"),
        ({"volumes": [{"name": "data", "source": "/data", "projects": ["visionx"]}]}, "volumes[0].projects"),
    ):
        for target in (PATH, "node-pools"):
            rejected = alice.post(target, {**values, **changes})
            assert (rejected.status_code, rejected.json()["errors"][0]["path"]) == (422, path), target


def test_dry_run_ignores_the_idempotency_key(
    cast: Cast, alice: Caller, values: dict[str, Any], cluster: FakeCluster
) -> None:
    alice.post(PATH, values, Idempotency_Key="k1")
    cluster.remove_node("b")
    again = alice.post(PATH, values, Idempotency_Key="k1").json()
    assert [node["name"] for node in again["nodes"]] == ["a"]
    assert alice.post("node-pools", values, Idempotency_Key="k1").status_code == 201


def test_only_platform_admins_may_preview_a_pool(cast: Cast, carol: Caller, values: dict[str, Any]) -> None:
    assert carol.post(PATH, values).status_code == 403


@pytest.mark.heavy
def test_preview_is_empty_for_a_provider_that_does_not_support_previews(cast: Cast, alice: Caller) -> None:
    preview = alice.post(PATH, {"name": "small", "nodes": 1}).json()
    assert (preview["source"], preview["nodes"], preview["findings"]) == ("", [], [])


def test_pool_form_shows_the_preview_and_preserves_the_input(
    cast: Cast, values: dict[str, Any], cluster: FakeCluster
) -> None:
    cluster.forbid("get", "pods/log")
    client = Client()
    client.force_login(cast.people["alice"].user)
    fields = {
        "name": "prod", "provider": "kubernetes", "runtime": "kubernetes", "nodes_min": "1", "nodes_max": "2",
        "gpus_per_node": "4", "cpu": "1", "memory_mib": "1024", "node_placement": "auto",
        "autoscale_cooldown": "30", "autoscale_idle_timeout": "60", "drain_timeout": "600",
        "boot_timeout": "900", "boot_failure_limit": "5", "node_consolidation": "never",
        "node_consolidation_after": "300", "image_mode": "allow", "reclaim_min_runtime": "0",
        "preempt_min_runtime": "0", "kubeconfig": values["kubeconfig"],
    }  # fmt: skip
    answer = client.post("/node-pools/new", {**fields, "check": "1"}, headers={"HX-Request": "true"})
    text = answer.content.decode()
    assert answer.status_code == 200, answer.context["form"].errors
    assert "Usable nodes: 1 of 2, with 4 GPUs (3 free)" in text
    assert "the node is cordoned in Kubernetes" in text
    assert "The account may not get pods/log in all namespaces" in text
    assert answer.context["form"]["name"].value() == "prod"
    assert not NodePool.objects.filter(name="prod").exists()
    assert client.post("/node-pools/new", fields).status_code == 302
    assert NodePool.objects.filter(name="prod").exists()
