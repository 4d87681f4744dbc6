"""Here we show that what changed between looking and committing is noticed, bundle by bundle."""
from collections.abc import Callable
from typing import Any

import pytest

from pools.models import Node, NodePool
from pools.services import cordon_node
from projects.models import Phase, Quota, Workload
from projects.services import workloads
from scheduler.commit import commit
from scheduler.engine.cycle import decide
from scheduler.engine.plan import Bundle, Kind, Place, Plan
from scheduler.models import Cycle, DeviceClaim
from scheduler.observe import Seen, observe
from scheduler.specs import Specs
from tests.scheduler.stage import Stage


def looked(stage: Stage) -> tuple[Seen, Plan]:
    seen = observe(stage.clock.now(), Specs())
    return seen, decide(seen.snapshot)


def record(stage: Stage) -> Cycle:
    return Cycle(at=stage.clock.now(), epoch=1, trigger="test")


def cancelled(stage: Stage, workload: Workload) -> None:
    workloads.cancel(acting=stage.cast.alice, workload=workload)


def quota_edited(stage: Stage, workload: Workload) -> None:
    row = Quota.objects.get(project=stage.cast.vision)
    row.gpu_milli, row.version = 1000, row.version + 1
    row.save()


def quota_removed(stage: Stage, workload: Workload) -> None:
    Quota.objects.filter(department=stage.cast.research).delete()


def nodes_cordoned(stage: Stage, workload: Workload) -> None:
    for node in Node.objects.all():
        cordon_node(acting=stage.cast.alice, node=node)


def devices_taken(stage: Stage, workload: Workload) -> None:
    stage.submit("quick", roles=[{"name": "worker", "replicas": 4, "gpu": 0.5}], priority=99)
    commit(*looked(stage), stage.loop.post.held, record(stage))


@pytest.mark.parametrize("change", [cancelled, quota_edited, quota_removed, nodes_cordoned, devices_taken])
def test_a_bundle_that_no_longer_holds_is_dropped_whole(
    stage: Stage, change: Callable[[Stage, Workload], Any]
) -> None:
    workload = stage.submit(roles=[{"name": "worker", "replicas": 4, "gpu": 1}])
    seen, plan = looked(stage)
    assert len(plan.bundles) == 1
    change(stage, workload)
    outcome = commit(seen, plan, stage.loop.post.held, record(stage))
    assert (len(outcome.applied), len(outcome.stale)) == (0, 1)
    assert outcome.stale[0][1]
    assert not stage.pods(workload)
    assert stage.phase(workload) in (Phase.PENDING, Phase.CANCELLED)


def test_one_stale_bundle_does_not_hold_up_the_others(stage: Stage) -> None:
    first, second = stage.submit("first"), stage.submit("second")
    seen, plan = looked(stage)
    cancelled(stage, first)
    outcome = commit(seen, plan, stage.loop.post.held, record(stage))
    assert [bundle.workload for bundle in outcome.applied] == ["vision/second"]
    assert stage.phase(second) == Phase.STARTING


def test_a_bundle_that_the_database_refuses_is_found_and_dropped_alone(stage: Stage) -> None:
    """A plan that is wrong in itself: more CPU than the node has, which only the trigger sees."""
    greedy = stage.submit("greedy", roles=[{"name": "worker", "replicas": 2, "gpu": 1, "cpu": 8}])
    modest = stage.submit("modest", roles=[{"name": "worker", "replicas": 1, "gpu": 1}])
    seen = observe(stage.clock.now(), Specs())
    wrong = Bundle(
        Kind.START, "vision/greedy", "local",
        tuple(Place("vision/greedy", "worker", i, "local-0", (i,), 1000) for i in range(2)),
    )
    right = Bundle(
        Kind.START, "vision/modest", "local", (Place("vision/modest", "worker", 0, "local-1", (0,), 1000),)
    )
    outcome = commit(seen, Plan(bundles=(wrong, right)), stage.loop.post.held, record(stage))
    assert [bundle.workload for bundle in outcome.applied] == ["vision/modest"]
    assert "milli-CPU" in outcome.stale[0][1]
    assert (stage.phase(greedy), stage.phase(modest)) == (Phase.PENDING, Phase.STARTING)
    assert DeviceClaim.objects.count() == 1


def test_many_workloads_are_committed_in_few_statements(
    stage: Stage, django_assert_max_num_queries: Any
) -> None:
    for number in range(8):
        stage.submit(f"w{number}", roles=[{"name": "worker", "replicas": 1, "gpu": 0.5}])
    seen, plan = looked(stage)
    with django_assert_max_num_queries(18 + 4 * 8):
        outcome = commit(seen, plan, stage.loop.post.held, record(stage))
    assert len(outcome.applied) == 8


def test_looking_takes_as_many_statements_for_many_workloads_as_for_one(
    stage: Stage, django_assert_num_queries: Any
) -> None:
    stage.submit("first")
    observe(stage.clock.now(), Specs())
    for number in range(5):
        stage.submit(f"w{number}", waits_for=["first"])
    stage.tick(2)
    with django_assert_num_queries(11):
        observe(stage.clock.now(), Specs())


def test_workloads_of_two_pools_start_in_one_commit_each_in_its_own(stage: Stage) -> None:
    other = NodePool.objects.create(
        name="other", provider="fake", runtime="fake", nodes_min=0, nodes_max=1, gpus_per_node=2,
        cpu_milli=8000, memory_mib=16384,
    )
    stage.node(0, pool=other)
    Quota.objects.create(project=stage.cast.vision, pool=other, gpu_milli=2000)
    here, there = stage.submit("here", pools=["local"]), stage.submit("there", pools=["other"])
    stage.tick(2)
    assert [stage.phase(row) for row in (here, there)] == [Phase.RUNNING, Phase.RUNNING]
    assert [here.pool.name, there.pool.name] == ["local", "other"]
