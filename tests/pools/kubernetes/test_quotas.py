"""Tests for the quotas of a cluster, which limit the pods of projects."""

import select
from typing import Any

import pytest

from pools.kubernetes import mirror
from pools.kubernetes.quotas import read_quotas
from pools.runtimes.base import ClusterQuota, ClusterQuotas
from tests.contracts.kubernetes.stage import POOL, FakeKubernetesStage
from tests.contracts.pods import ended, poll_until, running

GPUS = "requests.nvidia.com/gpu"


def reads(stage: FakeKubernetesStage, *quotas: ClusterQuota, obstacle: str = "") -> None:
    expected = ClusterQuotas(quotas, obstacle)
    poll_until(lambda: stage.runtime.get_cluster_quotas(POOL), lambda current: current == expected)


def quota(stage: FakeKubernetesStage, resource: str, kind: str, hard: int, used: int = 0) -> ClusterQuota:
    (uid,) = (
        each["metadata"]["uid"]
        for each in stage.cluster.store.of_kind("resourcequotas")
        if (each["metadata"]["namespace"], each["metadata"]["name"]) == (stage.namespace, "team")
    )
    return ClusterQuota("team", stage.namespace, resource, kind, hard, used, uid)


def test_quota_amounts_are_converted_to_pool_units(stage: FakeKubernetesStage) -> None:
    hard: dict[str, Any] = {
        GPUS: "8", "requests.cpu": "1500m", "limits.cpu": "2", "memory": "1Gi", "limits.memory": "2Gi",
        "pods": "10", "requests.storage": "1Ti",
    }  # fmt: skip
    stage.cluster.set_quota(stage.namespace, "team", hard=hard)
    reads(
        stage,
        quota(stage, "limits.cpu", "limit_cpu", 2000),
        quota(stage, "limits.memory", "limit_memory_mib", 2048),
        quota(stage, "memory", "memory_mib", 1024),
        quota(stage, "pods", "pods", 10),
        quota(stage, "requests.cpu", "cpu", 1500),
        quota(stage, GPUS, "gpu", 8000),
    )


def test_cluster_quota_usage_counts_only_foreign_pods(stage: FakeKubernetesStage) -> None:
    stage.cluster.set_quota(stage.namespace, "team", hard={GPUS: "8"})
    reads(stage, quota(stage, GPUS, "gpu", 8000))
    stage.runtime.start(stage.order("p-1", "sleep", "inf", devices=(0, 1)))
    running(stage.runtime, "p-1")
    stage.cluster.add_foreign_pod("theirs", "node-1", gpus=3, namespace=stage.namespace)
    reads(stage, quota(stage, GPUS, "gpu", 8000, used=3000))


@pytest.mark.heavy
def test_pod_counts_as_used_until_its_deletion_completes(stage: FakeKubernetesStage) -> None:
    stage.cluster.set_quota(stage.namespace, "team", hard={"pods": "8"})
    stage.runtime.start(stage.stubborn("p-1"))
    running(stage.runtime, "p-1")
    stage.runtime.stop("p-1", 60)
    reads(stage, quota(stage, "pods", "pods", 8, used=1))
    stage.runtime.stop("p-1", 0)
    ended(stage.runtime, "p-1")
    reads(stage, quota(stage, "pods", "pods", 8))


def test_changed_quota_wakes_the_scheduler(stage: FakeKubernetesStage) -> None:
    stage.cluster.set_quota(stage.namespace, "team", hard={"pods": "1"})
    reads(stage, quota(stage, "pods", "pods", 1))
    stage.runtime.clear_wakeups()
    stage.cluster.set_quota(stage.namespace, "team", hard={"pods": "2"})
    reads(stage, quota(stage, "pods", "pods", 2))
    readable, _, _ = select.select(stage.runtime.wake_fds(), [], [], 0)
    assert readable


def test_quotas_of_other_namespaces_are_ignored(stage: FakeKubernetesStage) -> None:
    stage.cluster.set_quota("web", "team", hard={"pods": "1"})
    stage.cluster.set_quota(stage.namespace, "team", hard={"pods": "1"})
    reads(stage, quota(stage, "pods", "pods", 1))
    stage.cluster.set_quota("web", "new", hard={"pods": "1"})
    stage.cluster.set_quota(stage.namespace, "team", hard={"pods": "2"})
    reads(stage, quota(stage, "pods", "pods", 2))
    quotas = stage.access[POOL].cluster.mirror.quotas()
    assert [each["metadata"]["namespace"] for each in quotas] == [stage.namespace]


def test_requests_of_a_container_added_by_the_cluster_count_as_used(stage: FakeKubernetesStage) -> None:
    stage.cluster.set_quota(stage.namespace, "team", hard={"requests.cpu": "1"})
    stage.runtime.start(stage.order("p-1", "sleep", "inf"))
    running(stage.runtime, "p-1")
    pod = next(iter(stage.access[POOL].cluster.mirror.own_pods(POOL).values()))
    proxy = {"name": "proxy", "resources": {"requests": {"cpu": "100m"}}}
    pod["spec"]["containers"].insert(0, proxy)
    status = {"hard": {"requests.cpu": "1"}, "used": {"requests.cpu": "110m"}}
    (team,) = stage.cluster.store.of_kind("resourcequotas")
    bounds = read_quotas([{**team, "status": status}], [pod], GPUS)
    assert bounds == (quota(stage, "requests.cpu", "cpu", 1000, used=100),)


@pytest.mark.parametrize("spec", [{"scopes": ["BestEffort"]}, {"scopeSelector": {"matchExpressions": []}}])
def test_resource_quota_that_might_not_apply_to_workloads_is_ignored(
    stage: FakeKubernetesStage, spec: dict[str, Any]
) -> None:
    stage.cluster.set_quota(stage.namespace, "other", hard={"pods": "1"}, **spec)
    stage.cluster.set_quota(stage.namespace, "team", hard={"pods": "2"}, scopes=["NotTerminating"])
    reads(stage, quota(stage, "pods", "pods", 2))


def test_quotas_that_cannot_be_watched_are_polled(
    stage: FakeKubernetesStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mirror, "DENIED_RETRY_SECONDS", 0.1)
    stage.cluster.set_quota(stage.namespace, "team", hard={"pods": "1"})
    stage.cluster.forbid("watch", "resourcequotas")
    obstacle = str(stage.cluster.rejections["watch", "resourcequotas"])
    reads(stage, quota(stage, "pods", "pods", 1), obstacle=obstacle)
    stage.cluster.set_quota(stage.namespace, "team", hard={"pods": "2"})
    reads(stage, quota(stage, "pods", "pods", 2), obstacle=obstacle)


def test_missing_permission_is_reported_instead_of_quotas(
    stage: FakeKubernetesStage,
) -> None:
    stage.cluster.set_quota(stage.namespace, "team", hard={"pods": "1"})
    stage.cluster.forbid("list", "resourcequotas")
    current = stage.runtime.get_cluster_quotas(POOL)
    assert current.quotas == ()
    assert 'cannot list resource "resourcequotas"' in current.obstacle
    stage.runtime.start(stage.long("p-1"))
    running(stage.runtime, "p-1")
