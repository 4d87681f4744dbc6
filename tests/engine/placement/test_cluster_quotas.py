"""Tests for quotas that a pool's own cluster enforces on the pods of a project."""

from dataclasses import replace
from typing import Any

import pytest

from scheduler.engine.decide import decide, decide_with_layout
from scheduler.engine.model import ClusterQuota, Snapshot
from scheduler.engine.plan import Blocker, Plan, Reason
from scheduler.engine.smallest_change.search import smallest_change
from tests.engine.world import World, placed, stopped


def quota(kind: str, hard: float, used: float = 0, name: str = "team-a") -> ClusterQuota:
    scale = 1 if kind in ("pods", "memory_mib", "limit_memory_mib") else 1000
    resource = {
        "gpu": "requests.nvidia.com/gpu", "cpu": "requests.cpu", "memory_mib": "requests.memory",
        "limit_cpu": "limits.cpu", "limit_memory_mib": "limits.memory", "pods": "pods",
    }[kind]  # fmt: skip
    return ClusterQuota(name, "berth-a", resource, kind, round(hard * scale), round(used * scale))


def world(*quotas: ClusterQuota) -> World:
    there = World(n1=8, n2=8).department("d", 16)
    return there.project("p", "d", 16, cluster_quotas=quotas)


def blocker(plan: Plan, workload: str) -> Blocker:
    (rejection,) = [rejection for rejection in plan.rejections if rejection.workload == workload]
    return rejection.blockers[0]


def test_gang_over_a_cluster_quota_stays_pending_and_its_reason_names_the_quota() -> None:
    there = world(quota("gpu", 8)).running("has", "p", "n1", gpus=6).queued("new", "p", 2, gpus=2)
    plan = there.decide()
    assert plan.bundles == ()
    shown = blocker(plan, "new")
    assert shown.reason is Reason.CLUSTER_QUOTA
    assert shown.message == (
        "The cluster's quota `team-a` in namespace `berth-a` allows 8 nvidia.com/gpu; 6 are used, and "
        "this workload requests 4."
    )
    assert {key: shown.numbers[key] for key in ("resource", "used", "requested", "bound", "missing")} == {
        "resource": "gpu", "used": 6000, "requested": 4000, "bound": 8000, "missing": 2000,
    }  # fmt: skip


def test_gang_starts_once_the_cluster_quota_is_raised_or_freed() -> None:
    for quotas, starts in (
        ((quota("gpu", 8, used=5),), False),
        ((quota("gpu", 9, used=5),), True),
        ((quota("gpu", 8, used=4),), True),
        ((quota("gpu", 9, used=5), quota("gpu", 3, name="team-b")), False),
    ):
        assert bool(placed(world(*quotas).queued("new", "p", 2, gpus=2).decide())) is starts, quotas


@pytest.mark.parametrize(
    ("bound", "message"),
    [
        (quota("cpu", 8), "allows 8 CPUs (requests.cpu); 6 are used, and this workload requests 4."),
        (quota("limit_cpu", 8), "allows 8 CPUs (limits.cpu); 6 are used, and this workload requests 4."),
        (
            quota("memory_mib", 700),
            "700 MiB of memory (requests.memory); 600 MiB are used, and this workload requests 400 MiB.",
        ),
        (
            quota("limit_memory_mib", 700),
            "700 MiB of memory (limits.memory); 600 MiB are used, and this workload requests 400 MiB.",
        ),
        (quota("pods", 2), "allows 2 pods (pods); 1 is used, and this workload requests 2."),
    ],
)
def test_pending_reason_states_the_kind_and_numbers_of_the_cluster_quota(
    bound: ClusterQuota, message: str
) -> None:
    there = world(bound).running("has", "p", "n1", gpus=1, cpu=6, memory=600)
    plan = there.queued("new", "p", 2, gpus=1, cpu=2, memory=200).decide()
    assert placed(plan) == {}
    assert blocker(plan, "new").message.endswith(message)


def test_cluster_quota_of_a_project_does_not_restrict_other_projects() -> None:
    there = world(quota("pods", 0)).project("q", "d", 8)
    assert placed(there.queued("mine", "p").queued("theirs", "q").decide()) == {"theirs": ["n1"]}


def test_elastic_workload_scales_up_within_the_cluster_quota() -> None:
    for bound in (quota("gpu", 5), quota("pods", 5)):
        plan = world(bound).queued("grows", "p", 1, gpus=1, up_to=8).decide()
        assert len(placed(plan)["grows"]) == 5


def test_higher_priority_workload_preempts_to_stay_within_the_cluster_quota() -> None:
    there = world(quota("gpu", 8)).running("low", "p", "n1", gpus=8, priority=10)
    there.queued("high", "p", gpus=4, priority=90)
    assert stopped(there.decide()) == {"low"}


def test_no_workload_is_evicted_for_a_pod_count_quota() -> None:
    there = world(quota("pods", 1)).running("low", "p", "n1", gpus=8, priority=10)
    plan = there.queued("high", "p", gpus=8, priority=90).decide()
    assert plan.bundles == ()
    assert blocker(plan, "high").reason is Reason.CLUSTER_QUOTA


def test_workload_blocked_by_a_cluster_quota_evicts_no_workload_of_another_project() -> None:
    there = world(quota("gpu", 2)).project("q", "d", 0).running("theirs", "q", "n1 n2", gpus=8)
    plan = there.queued("new", "p", gpus=4).decide()
    assert plan.bundles == ()
    assert blocker(plan, "new").reason is Reason.CLUSTER_QUOTA


def test_changed_cluster_quota_takes_effect_with_a_reused_layout() -> None:
    def snapshot(**values: Any) -> Snapshot:
        bound = replace(quota("pods", 2), **values)
        return world(bound).running("has", "p", "n1").queued("new", "p", 2).snapshot()

    plan, layout = decide_with_layout(snapshot(), None)
    assert placed(plan) == {}
    for values, count in (({"hard": 3}, 2), ({"hard": 3, "used": 1}, 0)):
        plan, layout = decide_with_layout(snapshot(**values), layout)
        assert len(placed(plan).get("new", ())) == count
        assert plan == decide(snapshot(**values))


def test_ending_a_workload_that_uses_the_cluster_quota_is_suggested() -> None:
    there = world(quota("gpu", 8)).running("has", "p", "n1", gpus=8).queued("new", "p", gpus=4)
    change = smallest_change(there.snapshot(), "new").change
    assert change is not None
    assert (change.kind, change.subject) == ("workload_ended", "has")
