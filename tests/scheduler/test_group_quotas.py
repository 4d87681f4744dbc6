"""Tests for quota groups in the real scheduler loop, with two pools that share one quota."""

from datetime import timedelta
from typing import Any

import pytest

from berth.core.errors import Invalid
from pools.models import NodePool, QuotaGroup
from projects.models import Phase, Quota, Workload
from projects.services.quotas import groups, set_quota
from scheduler.loop.commit import locked_rows
from scheduler.loop.observe.specs import SpecCache
from scheduler.loop.observe.view import observe
from scheduler.models import Cycle, QueueStatus, Reservation, Usage
from scheduler.reports.explanations.workload import explain
from scheduler.reports.fair_share.table import share_table
from scheduler.reports.fair_share.trace import share_trace
from scheduler.reports.invariants import InvariantResult, check_invariants
from scheduler.reports.queues.starved import find_shortfalls
from scheduler.reports.replay import replay
from tests.scheduler.stage import NOON, Stage

TWO = [{"name": "worker", "replicas": 2, "gpu": 1}]


@pytest.fixture
def h100(stage: Stage, cloud: NodePool) -> QuotaGroup:
    """Create a group of both pools with 4 GPUs for research and 2 for vision."""
    group = groups.create_group(actor=stage.cast.alice, name="h100", pools=[stage.cast.pool, cloud])
    set_quota(actor=stage.cast.alice, owner=stage.cast.research, pool=group, values={"gpu": 4})
    set_quota(actor=stage.cast.alice, owner=stage.cast.vision, pool=group, values={"gpu": 2})
    cloud.refresh_from_db()
    return group


def explanation(workload: Workload) -> dict[str, Any]:
    workload.refresh_from_db()
    assert workload.explanation is not None
    return {blocker["reason"]: blocker["message"] for blocker in workload.explanation["blockers"]}


def test_group_quota_applies_across_both_pools(stage: Stage, h100: QuotaGroup) -> None:
    first = stage.submit("first", pools=["local"], roles=TWO, preemptible=False)
    second = stage.submit("second", pools=["cloud"], roles=TWO, preemptible=False)
    stage.tick(3, seconds=1)
    assert (stage.phase(first), stage.phase(second)) == (Phase.RUNNING, Phase.PENDING)
    assert explanation(second) == {
        "NonPreemptibleOverQuota": "Non-preemptible workloads must fit in the quota of vision (2 GPUs): 2 "
        "allocated to them, 2 requested. vision has 2 of its 2 GPUs allocated across h100: 2 in local."
    }


def test_freed_group_quota_can_be_used_in_the_other_pool(stage: Stage, h100: QuotaGroup) -> None:
    first = stage.submit("first", pools=["local"], roles=TWO, preemptible=False)
    second = stage.submit("second", pools=["cloud"], roles=TWO, preemptible=False)
    stage.tick(3, seconds=1)
    stage.finish(first)
    stage.tick(3, seconds=1)
    assert stage.phase(second) == Phase.RUNNING


def test_allocation_over_the_group_quota_is_reclaimed_once(stage: Stage, h100: QuotaGroup) -> None:
    # vision borrows two GPUs; speech takes them back in one pool, and not in the other.
    set_quota(actor=stage.cast.alice, owner=stage.cast.speech, pool=h100, values={"gpu": 2, "weight": 0})
    set_quota(actor=stage.cast.alice, owner=stage.cast.vision, pool=h100, values={"weight": 0})
    held = [stage.submit(name, pools=[name], roles=TWO) for name in ("cloud", "local")]
    stage.tick(3, seconds=1)
    assert [stage.phase(workload) for workload in held] == [Phase.RUNNING] * 2
    claims = [
        stage.submit(f"claim-{pool}", stage.cast.speech, pools=[pool], roles=TWO)
        for pool in ("cloud", "local")
    ]
    stage.tick(6, seconds=10)
    assert [stage.phase(workload) for workload in claims] == [Phase.RUNNING, Phase.PENDING]
    assert stage.phase(held[1]) == Phase.RUNNING


@pytest.mark.heavy
def test_stored_cycle_replays_the_same_decisions(stage: Stage, h100: QuotaGroup) -> None:
    stage.submit("first", pools=["local"], roles=TWO, preemptible=False)
    stage.submit("second", pools=["cloud"], roles=TWO, preemptible=False)
    stage.tick()
    cycle = Cycle.objects.exclude(snapshot=None).latest("pk")
    assert replay(cycle).identical


@pytest.mark.heavy
def test_edited_quota_group_applies_to_running_workloads(
    stage: Stage, h100: QuotaGroup, cloud: NodePool
) -> None:
    # After the pool leaves the group, its quota there is 0, and workloads in it no longer count.
    first = stage.submit("first", pools=["local"], roles=TWO, preemptible=False)
    second = stage.submit("second", pools=["cloud"], roles=TWO, preemptible=False)
    stage.tick(3, seconds=1)
    groups.edit_group(actor=stage.cast.alice, group=h100, pools=[cloud])
    stage.tick(3, seconds=1)
    assert (stage.phase(first), stage.phase(second)) == (Phase.RUNNING, Phase.RUNNING)


@pytest.mark.heavy
def test_commit_detects_a_changed_quota_group(stage: Stage, h100: QuotaGroup, cloud: NodePool) -> None:
    view = observe(stage.clock.now(), SpecCache())
    assert locked_rows._changed_queues(view) == frozenset()
    groups.edit_group(actor=stage.cast.alice, group=h100, pools=[cloud])
    assert locked_rows._changed_queues(view) == frozenset(view.queues.owners)


def test_reservation_is_dropped_if_it_would_exceed_the_quota_group_limit(
    stage: Stage, h100: QuotaGroup, cloud: NodePool
) -> None:
    # A workload whose limit is lowered while it waits for victims does not start.
    cast = stage.cast
    set_quota(actor=cast.alice, owner=cast.vision, pool=h100, values={"gpu": 4})
    stage.submit("first", pools=["local"], roles=TWO)
    borrower = stage.submit("borrower", cast.ads, pools=["cloud"], roles=TWO)
    stage.tick(3, seconds=1)
    assert stage.phase(borrower) == Phase.RUNNING
    second = stage.submit("second", pools=["cloud"], roles=TWO)
    stage.tick()
    assert Reservation.objects.filter(workload=second).exists()
    set_quota(actor=cast.alice, owner=cast.vision, pool=h100, values={"gpu": 2, "limit": {"gpu": 2}})
    stage.tick(6, seconds=10)
    assert stage.phase(second) == Phase.PENDING
    assert "ProjectLimit" in explanation(second)


@pytest.mark.heavy
def test_fair_shares_and_usage_depend_on_the_remaining_group_quota(
    stage: Stage, h100: QuotaGroup, cloud: NodePool
) -> None:
    cast = stage.cast
    for pool in ("local", "cloud"):
        stage.submit(f"in-{pool}", pools=[pool], roles=TWO)
    stage.tick(3, seconds=60)
    rows = {queue.name: queue for top, inner in share_table(cast.alice, cloud) for queue in (top, *inner)}
    assert (rows["vision"].quota, rows["vision"].over_quota) == (0, 2000)
    assert (rows["research"].quota, rows["research"].over_quota) == (2000, 0)
    (gpus, *_) = [row for row in share_trace(actor=cast.alice, owner=cast.vision, pool=cloud)
                  if (row.name, row.resource) == ("vision", "gpu")]  # fmt: skip
    assert "No quota is left in group h100." in gpus.explanation
    assert gpus.share == QueueStatus.objects.get(project=cast.vision, pool=cloud).share[0] / 1000
    queue = explain(cast.alice, Workload.objects.get(name="in-cloud")).queue["project"]
    assert (queue["pool"], queue["quota"]["gpu"], queue["allocated"]["gpu"]) == ("cloud", 0, 2)
    assert {row.rate[0] for row in Usage.objects.filter(project=cast.vision)} == {2000.0}
    assert {row.rate[0] for row in Usage.objects.filter(department=cast.research)} == {0.0}


@pytest.mark.heavy
def test_borrowing_is_measured_against_the_remaining_group_quota(
    stage: Stage, h100: QuotaGroup, cloud: NodePool
) -> None:
    cast = stage.cast
    for pool in ("local", "cloud"):
        stage.submit(f"in-{pool}", pools=[pool], roles=TWO)
    stage.tick(3, seconds=1)
    QueueStatus.objects.filter(project=cast.speech, pool=cloud).update(
        share=[1000, 0, 0], requested=[1000, 0, 0]
    )
    (shortfall,) = find_shortfalls(cast.alice, [cloud])
    assert [(row.project, row.over_quota) for row in shortfall.borrowers] == [("vision", 2000)]


def test_exceeded_quota_group_limit_is_reported(stage: Stage, h100: QuotaGroup) -> None:
    for pool in ("local", "cloud"):
        stage.submit(f"in-{pool}", pools=[pool], roles=TWO)
    stage.tick(3, seconds=1)

    def limits() -> InvariantResult:
        results = {result.name: result for result in check_invariants(stage.clock.now())}
        return results["project_and_department_limits_hold"]

    quota = Quota.objects.filter(project=stage.cast.vision)
    Quota.objects.update(updated_at=NOON - timedelta(hours=1))
    QuotaGroup.objects.update(updated_at=NOON - timedelta(hours=1))
    quota.update(limit_gpu_milli=4000)
    assert limits().ok
    quota.update(limit_gpu_milli=2000)
    assert limits().detail == "vision has 4000 milli-GPU allocated in h100, its limit is 2000"


def test_quota_group_cannot_have_the_name_of_a_pool(stage: Stage, h100: QuotaGroup) -> None:
    with pytest.raises(Invalid) as rejected:
        groups.create_group(actor=stage.cast.alice, name="cloud", pools=[stage.cast.pool])
    assert [problem.path for problem in rejected.value.problems] == ["name"]
    assert Quota.objects.filter(group=h100).count() == 2
