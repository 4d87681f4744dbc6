"""Tests that each step executes as many statements for 40 workloads as for one."""

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from berth.core.spec.values.addresses import Channel
from berth.db.loops.leader import TIMEOUT
from pools.models import Node
from projects.models import Delivery, Event, Phase, Pod, Subscription, Workload
from scheduler.loop.dispatch.checkpoints import CHECK_INTERVAL
from tests.harness.samples import sample
from tests.scheduler.stage import Stage
from tests.scheduler.tick_work.statements import (
    ONE_CPU,
    SIZES,
    Counts,
    assert_same,
    counted,
    large_node,
    phases,
    submit_copies,
)


@pytest.fixture
def stage(stage: Stage) -> Stage:
    for scope in (None, stage.cast.alice.user):
        Subscription.objects.create(
            user=scope,
            to=f"{scope}@example.org",
            channel=Channel.MAIL,
            events=["started", "completed", "failed"],
        )
    large_node(stage)
    stage.tick(2)
    stage.clock.advance(CHECK_INTERVAL.total_seconds())
    return stage


def tick(stage: Stage, counts: Counts, label: str) -> None:
    """Run a tick and a reconcile pass without cleaning up, and count the statements of each step."""
    loop, now = stage.loop, stage.clock.now()
    loop.idle_rules_at = None  # every counted pass applies the idle rules, as it records checkpoints
    with counted(counts, f"{label}: observe"):
        view = loop.observe(now, TIMEOUT)
    plan = loop.decide(view)
    with counted(counts, f"{label}: commit"):
        loop.commit(view, plan)
    with counted(counts, f"{label}: dispatch"):
        loop.dispatch(now)
    with counted(counts, f"{label}: reconcile"):
        assert [*loop.reconcile_steps()]
    stage.clock.advance(CHECK_INTERVAL.total_seconds())


def test_workload_start_runs_no_queries_for_absent_reservations_claims_or_arrays(
    stage: Stage,
) -> None:
    stage.submit("small", roles=ONE_CPU)
    view = stage.loop.observe(stage.clock.now(), TIMEOUT)
    plan = stage.loop.decide(view)
    with CaptureQueriesContext(connection) as captured:
        stage.loop.commit(view, plan)
    statements = [query["sql"] for query in captured.captured_queries]
    assert [sql for sql in statements if "projects_pod" in sql and "INSERT" in sql]
    unneeded = ('DELETE FROM "scheduler_reservation"', "scheduler_deviceclaim", "projects_workloadarray")
    assert [sql for sql in statements for name in unneeded if name in sql] == []


def test_run_that_starts_and_ends_between_two_ticks_is_stored_in_one_update(stage: Stage) -> None:
    stage.runtime.runs_immediately = False
    workload = stage.submit("short", roles=ONE_CPU)
    stage.tick()
    (pod,) = stage.pods(workload)
    stage.runtime.run(str(pod.pk))
    stage.runtime.end(str(pod.pk), exit_code=0)
    with CaptureQueriesContext(connection) as captured:
        stage.loop.tick(TIMEOUT, reconcile=False)
    changes = [
        query["sql"]
        for query in captured.captured_queries
        if 'UPDATE "projects_workload"' in query["sql"] and '"phase" =' in query["sql"]
    ]
    assert len(changes) == 1
    workload.refresh_from_db()
    assert workload.phase == Phase.COMPLETED
    assert workload.started_at is not None
    kinds = Event.objects.filter(workload_id=workload.pk).order_by("pk").values_list("kind", flat=True)
    assert [*kinds][-2:] == ["running", "completed"]
    sent = Delivery.objects.filter(workload_id=workload.pk).order_by("pk").values_list("kind", flat=True)
    assert [*dict.fromkeys(sent)] == ["started", "completed"]


def end(stage: Stage, workloads: list[Workload], exit_code: int) -> None:
    for pk in Pod.objects.filter(workload__in=workloads).values_list("pk", flat=True):
        stage.runtime.end(str(pk), exit_code=exit_code)


@pytest.mark.parametrize("exit_code", sample([0, 1], 1))
def test_statement_count_for_runs_does_not_grow_with_workloads(stage: Stage, exit_code: int) -> None:
    by_size: dict[int, Counts] = {}
    for size in SIZES:
        workloads, counts = submit_copies(stage, size), by_size.setdefault(size, {})
        tick(stage, counts, "start")
        assert phases(workloads) == {Phase.STARTING}
        tick(stage, counts, "run")
        assert phases(workloads) == {Phase.RUNNING}
        end(stage, workloads, exit_code)
        tick(stage, counts, "end")
        assert phases(workloads) == {Phase.FAILED if exit_code else Phase.COMPLETED}
    assert_same(by_size)


@pytest.mark.heavy
def test_statement_count_for_evictions_does_not_grow_with_workloads(stage: Stage) -> None:
    by_size: dict[int, Counts] = {}
    for size in SIZES:
        node = stage.node(100 + size, cpu_milli=size * 1000, memory_mib=1_000_000, max_pods=200)
        selector = {"berth.dev/node": node.name}
        Node.objects.filter(pk=node.pk).update(labels=selector)
        role = {"name": "worker", "replicas": 1, "node_selector": selector}
        low = submit_copies(stage, size, priority=10, roles=[{**role, "cpu": 1}])
        stage.tick(2)
        assert phases(low) == {Phase.RUNNING}
        high = stage.submit(f"high-{size}", priority=90, roles=[{**role, "cpu": size}])
        counts = by_size.setdefault(size, {})
        with counted(counts, "commit"):
            now = stage.clock.now()
            view = stage.loop.observe(now, TIMEOUT)
            stage.loop.commit(view, stage.loop.decide(view))
        assert phases(low) == {Phase.STOPPING}
        stage.tick(4)
        assert phases([high]) == {Phase.RUNNING}
        Workload.objects.filter(phase=Phase.PENDING).delete()
    assert_same(by_size)
