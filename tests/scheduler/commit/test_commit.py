"""Tests that changes between observe and commit are detected per bundle."""

from collections.abc import Callable
from typing import Any

import pytest
from django.db import OperationalError, connection, transaction

from pools.models import Node, NodePool
from pools.services import cordon_node
from projects.models import Phase, Quota, Workload
from projects.services.workloads import control
from scheduler.engine.decide import decide
from scheduler.engine.plan import Bundle, Kind, Place, Plan
from scheduler.loop.commit import commit, locked_rows
from scheduler.loop.commit.bind import NewRows
from scheduler.loop.observe.specs import SpecCache
from scheduler.loop.observe.view import ClusterView, observe
from scheduler.models import Cycle, DeviceClaim
from tests.scheduler.stage import Stage
from tests.support.second_connection import run_on_second_connection


def observe_cluster(stage: Stage) -> tuple[ClusterView, Plan]:
    seen = observe(stage.clock.now(), SpecCache())
    return seen, decide(seen.snapshot)


def record(stage: Stage) -> Cycle:
    return Cycle(at=stage.clock.now(), epoch=1, trigger="test")


def cancelled(stage: Stage, workload: Workload) -> None:
    control.cancel(actor=stage.cast.alice, workload=workload)


def quota_edited(stage: Stage, workload: Workload) -> None:
    row = Quota.objects.get(project=stage.cast.vision)
    row.gpu_milli, row.version = 1000, row.version + 1
    row.save()


def quota_removed(stage: Stage, workload: Workload) -> None:
    Quota.objects.filter(department=stage.cast.research).delete()


def nodes_cordoned(stage: Stage, workload: Workload) -> None:
    for node in Node.objects.all():
        cordon_node(actor=stage.cast.alice, node=node)


def devices_taken(stage: Stage, workload: Workload) -> None:
    stage.submit("quick", roles=[{"name": "worker", "replicas": 4, "gpu": 0.5}], priority=99)
    commit(*observe_cluster(stage), stage.loop.context.held_lease, record(stage))


@pytest.mark.parametrize("change", [cancelled, quota_edited, quota_removed, nodes_cordoned, devices_taken])
def test_stale_bundle_is_dropped_entirely(stage: Stage, change: Callable[[Stage, Workload], Any]) -> None:
    workload = stage.submit(roles=[{"name": "worker", "replicas": 4, "gpu": 1}])
    seen, plan = observe_cluster(stage)
    assert len(plan.bundles) == 1
    change(stage, workload)
    outcome = commit(seen, plan, stage.loop.context.held_lease, record(stage))
    assert (len(outcome.applied), len(outcome.stale)) == (0, 1)
    assert outcome.stale[0][1]
    assert not stage.pods(workload)
    assert stage.phase(workload) in (Phase.PENDING, Phase.CANCELLED)


def test_stale_bundle_does_not_block_other_bundles(stage: Stage) -> None:
    first, second = stage.submit("first"), stage.submit("second")
    seen, plan = observe_cluster(stage)
    cancelled(stage, first)
    outcome = commit(seen, plan, stage.loop.context.held_lease, record(stage))
    assert [bundle.workload for bundle in outcome.applied] == ["vision/second"]
    assert stage.phase(second) == Phase.STARTING


def test_only_the_bundle_that_exceeds_node_capacity_is_dropped(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The plan itself is invalid: its pods request more CPU than the node has.
    written = 0
    write = NewRows.write

    def counted(bound: NewRows) -> None:
        nonlocal written
        written += 1
        write(bound)

    monkeypatch.setattr(NewRows, "write", counted)
    greedy = stage.submit("greedy", roles=[{"name": "worker", "replicas": 2, "gpu": 1, "cpu": 8}])
    modest = stage.submit("modest", roles=[{"name": "worker", "replicas": 1, "gpu": 1}])
    seen = observe(stage.clock.now(), SpecCache())
    wrong = Bundle(
        Kind.START,
        "vision/greedy",
        "local",
        tuple(Place("vision/greedy", "worker", i, "local-0", (i,), 1000) for i in range(2)),
    )
    right = Bundle(
        Kind.START, "vision/modest", "local", (Place("vision/modest", "worker", 0, "local-1", (0,), 1000),)
    )
    outcome = commit(seen, Plan(bundles=(wrong, right)), stage.loop.context.held_lease, record(stage))
    assert [bundle.workload for bundle in outcome.applied] == ["vision/modest"]
    assert "milli-CPU" in outcome.stale[0][1]
    assert written == 1, "the conflict is detected before anything is written"
    assert (stage.phase(greedy), stage.phase(modest)) == (Phase.PENDING, Phase.STARTING)
    assert DeviceClaim.objects.count() == 1


def test_many_workloads_are_committed_in_few_statements(
    stage: Stage, django_assert_max_num_queries: Any
) -> None:
    for number in range(8):
        stage.submit(f"w{number}", roles=[{"name": "worker", "replicas": 1, "gpu": 0.5}])
    seen, plan = observe_cluster(stage)
    with django_assert_max_num_queries(18 + 4 * 8):
        outcome = commit(seen, plan, stage.loop.context.held_lease, record(stage))
    assert len(outcome.applied) == 8


def test_statement_count_of_the_observe_step_does_not_grow_with_workloads(
    stage: Stage, django_assert_num_queries: Any
) -> None:
    stage.submit("first")
    observe(stage.clock.now(), SpecCache())
    for number in range(5):
        stage.submit(f"w{number}", after=[{"workload": "first"}])
    stage.tick(2)
    with django_assert_num_queries(12):
        observe(stage.clock.now(), SpecCache())


def test_workloads_of_two_pools_start_in_one_commit(stage: Stage) -> None:
    other = NodePool.objects.create(
        name="other",
        provider="fake",
        runtime="fake",
        nodes_min=0,
        nodes_max=1,
        gpus_per_node=2,
        cpu_milli=8000,
        memory_mib=16384,
    )
    stage.node(0, pool=other)
    Quota.objects.create(project=stage.cast.vision, pool=other, gpu_milli=2000)
    here, there = stage.submit("here", pools=["local"]), stage.submit("there", pools=["other"])
    stage.tick(2)
    assert [stage.phase(row) for row in (here, there)] == [Phase.RUNNING, Phase.RUNNING]
    assert [here.pool, there.pool] == [stage.cast.pool, other]


def cpu_taken(stage: Stage, seen: ClusterView) -> None:
    Node.objects.update(cpu_milli=1500)


def memory_taken(stage: Stage, seen: ClusterView) -> None:
    Node.objects.update(memory_mib=1500)


def pods_taken(stage: Stage, seen: ClusterView) -> None:
    Node.objects.update(max_pods=1)


@pytest.mark.parametrize("race", [cpu_taken, memory_taken, pods_taken])
@pytest.mark.parametrize("judged", [True, False])
def test_only_the_bundle_that_needs_lost_capacity_is_dropped(
    stage: Stage, race: Callable[[Stage, ClusterView], None], judged: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Both Berth's check and the database constraint detect the lost capacity.
    wide = [{"name": "worker", "replicas": 2, "gpu": 0.5, "cpu": 1, "memory_mib": 1000}]
    late = stage.submit("late", roles=wide)
    small = stage.submit(
        "small",
        roles=[{"name": "worker", "replicas": 1, "gpu": 0.5, "cpu": 1, "memory_mib": 1000}],
    )
    seen = observe(stage.clock.now(), SpecCache())
    bundles = (
        Bundle(
            Kind.START,
            "vision/late",
            "local",
            tuple(Place("vision/late", "worker", i, "local-0", (0,), 500) for i in range(2)),
        ),
        Bundle(
            Kind.START, "vision/small", "local", (Place("vision/small", "worker", 0, "local-1", (0,), 500),)
        ),
    )
    race(stage, seen)
    if not judged:
        monkeypatch.setattr(locked_rows, "_resource_conflict", lambda requested, locked: "")
    outcome = commit(seen, Plan(bundles=bundles), stage.loop.context.held_lease, record(stage))
    assert [bundle.workload for bundle in outcome.applied] == ["vision/small"]
    assert "node local-0 would" in outcome.stale[0][1]
    assert (stage.phase(late), stage.phase(small)) == (Phase.PENDING, Phase.STARTING)


def test_deadlock_drops_bundles_without_counting_as_a_database_outage(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.submit("first")
    stage.submit("second")
    seen, plan = observe_cluster(stage)
    write = NewRows.write

    def deadlocked(bound: NewRows) -> None:
        if any(transition.workload.name == "first" for transition in bound.transitions.values()):
            with connection.cursor() as cursor:
                cursor.execute("DO $$ BEGIN RAISE EXCEPTION 'deadlock' USING ERRCODE = '40P01'; END $$")
        write(bound)

    monkeypatch.setattr(NewRows, "write", deadlocked)
    outcome = commit(seen, plan, stage.loop.context.held_lease, record(stage))
    assert [bundle.workload for bundle in outcome.applied] == ["vision/second"]
    assert [bundle.workload for bundle, _ in outcome.stale] == ["vision/first"]


def test_quota_edit_waits_for_the_schedulers_commit(stage: Stage) -> None:
    stage.submit()
    seen, plan = observe_cluster(stage)

    def edited() -> None:
        with transaction.atomic():
            Quota.objects.select_for_update(nowait=True).get(project=stage.cast.vision)

    with transaction.atomic():
        locked_rows.lock_rows(seen, plan.bundles)
        blocked = run_on_second_connection(edited)
        free = run_on_second_connection(
            lambda: Quota.objects.filter(project=stage.cast.speech).update(version=9)
        )
    assert isinstance(blocked, OperationalError)
    assert free == 0


def test_plan_is_stale_after_its_workload_was_suspended_resumed_and_cancelled(stage: Stage) -> None:
    workload = stage.submit(grace_period_seconds=30)
    stage.tick(2)
    stage.runtime.stubborn.update(stage.runtime.running())
    versions = []
    for steer in (control.suspend, control.resume, control.cancel):
        steer(actor=stage.cast.alice, workload=workload)
        workload.refresh_from_db()
        versions.append(workload.version)
    assert len(set(versions)) == 3
    assert versions == sorted(versions)
