"""Tests that each step executes as many statements for 100 workloads as for one."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import connection

from berth.core.spec.addresses import Channel
from berth.db.leader import TIMEOUT
from pools.models import Node
from projects.models import Phase, Pod, Subscription, Workload
from scheduler.loop.dispatch.checkpoints import CHECK_INTERVAL
from tests.scheduler.stage import Stage

SIZES = (1, 10, 100)
ONE_CPU = [{"name": "worker", "replicas": 1, "cpu": 1}]
Counts = dict[str, int]


@pytest.fixture
def stage(stage: Stage) -> Stage:
    """Add a node for 200 pods, two subscribers, and a workload that keeps the caches filled."""
    stage.node(2, cpu_milli=200_000, memory_mib=1_000_000, max_pods=200)
    for scope in (None, stage.cast.alice.user):
        Subscription.objects.create(
            user=scope,
            to=f"{scope}@example.org",
            channel=Channel.MAIL,
            events=["started", "completed", "failed"],
        )
    stage.submit("long", roles=ONE_CPU)
    stage.tick(3)
    stage.clock.advance(CHECK_INTERVAL.total_seconds())
    return stage


def submit_copies(stage: Stage, count: int, **changes: Any) -> list[Workload]:
    first = stage.submit(f"copies-of-{count}", **{"roles": ONE_CPU, **changes})
    names = [field.attname for field in Workload._meta.concrete_fields if field.name not in ("id", "name")]
    values = {name: getattr(first, name) for name in names}
    copies = [Workload(**values, name=f"copy-{number}-of-{count}") for number in range(1, count)]
    return [first, *Workload.objects.bulk_create(copies)]


@contextmanager
def counted(counts: Counts, step: str) -> Iterator[None]:
    counts[step] = 0

    def count(execute: Callable[..., Any], sql: str, *arguments: Any) -> Any:
        if not sql.startswith("SELECT pg_notify"):  # announcements to open pages are merged by time
            counts[step] += 1
        return execute(sql, *arguments)

    with connection.execute_wrapper(count):
        yield


def tick(stage: Stage, counts: Counts, label: str) -> None:
    """Run a tick and a reconcile pass without cleaning up, and count the statements of each step."""
    loop, now = stage.loop, stage.clock.now()
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


def phases(workloads: list[Workload]) -> set[str]:
    return set(Workload.objects.filter(pk__in=[row.pk for row in workloads]).values_list("phase", flat=True))


def end(stage: Stage, workloads: list[Workload], exit_code: int) -> None:
    for pk in Pod.objects.filter(workload__in=workloads).values_list("pk", flat=True):
        stage.runtime.end(str(pk), exit_code=exit_code)


def assert_same(by_size: dict[int, Counts]) -> None:
    first = by_size[SIZES[0]]
    assert all(counts == first for counts in by_size.values()), by_size


@pytest.mark.parametrize("exit_code", [0, 1])
def test_statements_of_a_run_do_not_depend_on_the_number_of_workloads(stage: Stage, exit_code: int) -> None:
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


def test_statements_of_evictions_do_not_depend_on_the_number_of_workloads(stage: Stage) -> None:
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
