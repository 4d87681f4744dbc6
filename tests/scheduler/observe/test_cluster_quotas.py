"""Tests for workloads limited by a quota of the pool's cluster."""

from dataclasses import replace
from typing import Any

import pytest

from pools.models import NodePool
from pools.runtimes.base import ClusterQuota, ClusterQuotas, RuntimeFailure
from pools.selectors import project_namespace
from projects.models import Phase, Quota
from projects.services.workloads.prediction import dry_run
from scheduler.loop.tick import POD_TRIGGER
from scheduler.models import Cycle
from scheduler.reports.explanations.workload import explain
from scheduler.reports.pool_diagnosis import diagnose_pool
from scheduler.reports.replay import replay
from tests import factories as make
from tests.cast import training
from tests.scheduler.stage import Stage

GANG: dict[str, Any] = {"roles": [{"name": "worker", "replicas": 2, "gpu": 1}]}


def limit(stage: Stage, gpus: int, used: int = 0) -> None:
    namespace, resource = project_namespace("vision"), "requests.nvidia.com/gpu"
    quota = ClusterQuota("team-a", namespace, resource, "gpu", gpus * 1000, used * 1000, uid="4e1f")
    stage.runtime.cluster_quotas = ClusterQuotas((quota,))


def test_blocked_workload_stays_pending_and_starts_when_the_quota_is_raised(stage: Stage) -> None:
    limit(stage, gpus=3, used=2)
    workload = stage.submit(**GANG)
    stage.tick()
    assert stage.phase(workload) == Phase.PENDING
    assert stage.pods(workload) == []
    assert workload.reason == "ClusterQuota"
    assert workload.message == (
        f"The cluster's quota `team-a` in namespace `{project_namespace('vision')}` allows 3 nvidia.com/gpu; "
        "2 are used, and this workload requests 2."
    )
    (blocker,) = explain(stage.cast.alice, workload).blockers
    assert (blocker["reason"], blocker["numbers"]["missing"]) == ("ClusterQuota", 1000)
    limit(stage, gpus=4, used=2)
    stage.loop.tick(POD_TRIGGER)
    stage.tick()
    assert stage.phase(workload) == Phase.RUNNING


def test_cluster_quota_restricts_only_its_project(stage: Stage) -> None:
    stage.quota(stage.cast.speech, 2)
    limit(stage, gpus=0)
    blocked, other = stage.submit("blocked", **GANG), stage.submit("other", project=stage.cast.speech, **GANG)
    stage.tick(2)
    assert (stage.phase(blocked), stage.phase(other)) == (Phase.PENDING, Phase.RUNNING)


def test_dry_run_and_replay_apply_the_cluster_quota(stage: Stage) -> None:
    limit(stage, gpus=1)
    stage.submit("blocked", **GANG)
    stage.tick()
    document = {**training("next", **GANG), "project": "vision"}
    prediction = dry_run(actor=stage.cast.dave, document=document, now=stage.clock.now())
    assert prediction.blockers[0]["reason"] == "ClusterQuota"
    assert replay(Cycle.objects.latest("pk")).identical


def test_stored_quotas_are_kept_while_the_cluster_does_not_respond(stage: Stage) -> None:
    limit(stage, gpus=1)
    workload = stage.submit(**GANG)
    stage.tick()
    stage.runtime.next("get_cluster_quotas", RuntimeFailure("unreachable"))
    stage.tick()
    assert stage.phase(workload) == Phase.PENDING
    assert workload.reason == "ClusterQuota"


@pytest.mark.heavy
def test_doctor_reports_unreadable_cluster_quotas(stage: Stage) -> None:
    stage.runtime.cluster_quotas = ClusterQuotas(obstacle="resourcequotas is forbidden")
    stage.tick()
    pool = NodePool.objects.get()
    (finding,) = [each for each in diagnose_pool(pool, stage.clock.now()) if each.name == "cluster quotas"]
    assert "rejects pods: resourcequotas is forbidden." in finding.finding
    assert "deploy/kubernetes/role.yaml" in finding.remedy


def add_second_pool(stage: Stage) -> None:
    second = make.pool("second", provider="fake", runtime="fake")
    stage.node(0, second)
    for owner in ({"department": stage.cast.research}, {"project": stage.cast.vision}):
        Quota.objects.create(pool=second, gpu_milli=8000, **owner)


@pytest.mark.heavy
def test_two_pools_on_one_cluster_do_not_exceed_its_quota_in_the_same_cycle(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_second_pool(stage)
    limit(stage, gpus=2)
    workloads = [stage.submit(name, pools=[name], **GANG) for name in (stage.cast.pool.name, "second")]
    stage.tick()
    placed = [workload for workload in workloads if stage.pods(workload)]
    assert len(placed) == 1
    assert stage.loop.has_more, "the next cycle must follow immediately"
    # The cluster counts the new pods as used for the other pool.
    (quota,) = stage.runtime.cluster_quotas.quotas

    def report_quotas(pool: str) -> ClusterQuotas:
        return ClusterQuotas((quota if pool in placed[0].spec["pools"] else replace(quota, used=2000),))

    monkeypatch.setattr(stage.runtime, "get_cluster_quotas", report_quotas)
    stage.tick(2)
    (blocked,) = (workload for workload in workloads if workload not in placed)
    assert (stage.phase(placed[0]), stage.phase(blocked)) == (Phase.RUNNING, Phase.PENDING)
    assert blocked.reason == "ClusterQuota"


@pytest.mark.heavy
def test_quotas_with_the_same_name_in_two_clusters_are_independent(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_second_pool(stage)
    limit(stage, gpus=2)
    (quota,) = stage.runtime.cluster_quotas.quotas

    def report_quotas(pool: str) -> ClusterQuotas:
        return ClusterQuotas((replace(quota, uid=pool),))

    monkeypatch.setattr(stage.runtime, "get_cluster_quotas", report_quotas)
    workloads = [stage.submit(name, pools=[name], **GANG) for name in (stage.cast.pool.name, "second")]
    stage.tick()
    assert all(stage.pods(workload) for workload in workloads)
