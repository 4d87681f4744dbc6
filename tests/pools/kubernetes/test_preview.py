"""Tests for the preview of a cluster before a pool is created on it."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest

from pools.kubernetes.api_server import api
from pools.kubernetes.api_server.credentials import Connection
from pools.kubernetes.cluster import Clusters, PoolAccess
from pools.kubernetes.preview.examine import examine_cluster
from pools.kubernetes.settings import kubernetes_settings
from pools.providers.base import Shape
from pools.providers.preview import Preview, Severity
from tests.fakes.kubernetes import FakeCluster, serve

SHAPE = Shape(4000, 8192, gpus=2)


@dataclass
class Stage:
    cluster: FakeCluster
    url: str

    def preview(self, claimed_by: dict[str, str] | None = None, **settings: object) -> Preview:
        clusters = Clusters(lambda: "test")
        with clusters.open_temporary(Connection(self.url)) as cluster:
            access = PoolAccess(cluster, kubernetes_settings(settings))
            return examine_cluster(access, SHAPE, claimed_by or {})


@pytest.fixture
def stage() -> Iterator[Stage]:
    cluster = FakeCluster()
    with serve(cluster) as url:
        yield Stage(cluster, url)


def test_cluster_preview_shows_gpus_foreign_pods_and_reasons_for_excluded_nodes(stage: Stage) -> None:
    model = {"nvidia.com/gpu.product": "H100"}
    for name in ("busy", "claimed", "cordoned", "free", "tainted"):
        stage.cluster.add_node(name, gpus=4, labels=model)
    stage.cluster.add_node("small", gpus=1, cpu="2")
    stage.cluster.add_foreign_pod("theirs", "busy", gpus=3)
    stage.cluster.change_node("cordoned", unschedulable=True)
    stage.cluster.change_node("tainted", taints=[{"key": "team", "value": "x", "effect": "NoSchedule"}])
    uid = stage.cluster.store.find("nodes", "", "claimed")["metadata"]["uid"]
    shown = stage.preview({uid: "other"})
    assert shown.source == f"Kubernetes 1.30.0 at {stage.url}"
    assert shown.findings == ()
    assert {node.name: node.obstacle for node in shown.nodes} == {
        "busy": "",
        "claimed": "the node is used by pool other",
        "cordoned": "the node is cordoned in Kubernetes",
        "free": "",
        "small": "the node is smaller than the pool's node shape: it has 1 of 2 GPUs, 2 of 4 cores",
        "tainted": "the node has the taint team=x:NoSchedule",
    }
    busy = shown.nodes[0]
    assert (busy.total.gpus, busy.total.gpu_model, busy.used.gpus) == (4, "H100", 3)
    assert busy.details == "1 pod of others"


def test_cluster_preview_is_read_only(stage: Stage) -> None:
    stage.cluster.add_node("n", gpus=2)
    stage.preview()
    assert {verb for verb, _ in stage.cluster.calls} == {"list", "create"}
    assert {resource for verb, resource in stage.cluster.calls if verb == "create"} == {
        "selfsubjectaccessreviews"
    }


def test_each_missing_permission_is_named_with_the_rule_that_grants_it(stage: Stage) -> None:
    stage.cluster.add_node("n", gpus=2)
    stage.cluster.forbid("get", "pods/log")
    stage.cluster.forbid("watch", "nodes")
    findings = stage.preview().findings
    assert [finding.severity for finding in findings] == [Severity.ERROR] * 2
    assert findings[0].message == ("The account may not watch nodes, so Berth cannot follow nodes.")
    assert '{apiGroups: [""], resources: [pods/log], verbs: [get]}' in findings[1].remedy


def test_missing_permission_to_list_nodes_is_reported_in_the_preview(stage: Stage) -> None:
    stage.cluster.forbid("list", "nodes")
    shown = stage.preview()
    assert shown.nodes == ()
    assert [finding.message for finding in shown.findings] == [
        "The account may not list nodes, so Berth cannot find nodes."
    ]


def test_missing_permission_to_check_permissions_causes_a_warning(stage: Stage) -> None:
    stage.cluster.add_node("n", gpus=2)
    stage.cluster.forbid("create", "selfsubjectaccessreviews")
    (finding,) = stage.preview().findings
    assert finding.severity == Severity.WARNING
    assert "authorization.k8s.io" in finding.remedy


def test_foreign_namespace_with_a_conflicting_name_is_reported(stage: Stage) -> None:
    stage.cluster.add_node("n", gpus=2)
    stage.cluster.store.put("namespaces", {"metadata": {"name": "berth-test-vision"}})
    labels = {"berth.dev/installation": "test"}
    stage.cluster.store.put("namespaces", {"metadata": {"name": "berth-test-ads", "labels": labels}})
    (finding,) = stage.preview().findings
    assert finding.severity == Severity.WARNING
    assert "do not belong to it: berth-test-vision." in finding.message
    assert finding.remedy == "Delete these namespaces, or label them berth.dev/installation=test."


def test_selector_without_matches_and_missing_devices_are_reported(stage: Stage) -> None:
    stage.cluster.add_node("n", gpus=2, labels={"acme.com/gpu": "yes"})
    (finding,) = stage.preview(node_selector={"gpus": "yes"}).findings
    assert finding.message == "No node has the labels gpus=yes; the cluster has 1 node."
    assert finding.remedy == ("Change provider_settings.node_selector. Labels that name GPUs: acme.com/gpu.")
    (finding,) = stage.preview(gpu_resource="amd.com/gpu").findings
    assert finding.message == "No selected node offers amd.com/gpu. The nodes offer: nvidia.com/gpu."


def test_nodes_excluded_by_the_selector_are_counted(stage: Stage) -> None:
    stage.cluster.add_node("n", gpus=2, labels={"gpus": "yes"})
    stage.cluster.add_node("control-plane")
    shown = stage.preview(node_selector={"gpus": "yes"})
    assert [node.name for node in shown.nodes] == ["n"]
    assert [finding.message for finding in shown.findings] == [
        "The selector excludes 1 other node of the cluster."
    ]


def test_clock_skew_causes_a_warning(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.cluster.add_node("n", gpus=2)
    monkeypatch.setattr(api, "parsedate_to_datetime", lambda text: datetime.now(UTC) + timedelta(seconds=90))
    (finding,) = stage.preview().findings
    assert finding.severity == Severity.WARNING
    assert re.match(r"The API server's clock is (89|90) s ahead of Berth's", finding.message)
