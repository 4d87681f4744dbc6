"""Copy a workload, and count the statements that a step executes for the copies."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import connection

from projects.models import Workload
from scheduler.loop.dispatch import record_reports
from tests.scheduler.stage import Stage

SIZES = (1, 10, 40)
ONE_CPU = [{"name": "worker", "replicas": 1, "cpu": 1}]
Counts = dict[str, int]


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


def run_pending(stage: Stage) -> None:
    """Start the pending workloads and record that their pods run, without the slow steps of a tick."""
    stage.loop.tick(reconcile=False)
    record_reports(stage.clock.now(), stage.loop.context)


def phases(workloads: Sequence[Workload]) -> set[str]:
    return set(Workload.objects.filter(pk__in=[row.pk for row in workloads]).values_list("phase", flat=True))


def assert_same(by_size: dict[int, Counts]) -> None:
    first = by_size[SIZES[0]]
    assert any(first.values())
    assert all(counts == first for counts in by_size.values()), by_size


def large_node(stage: Stage) -> None:
    """Add a node for 200 pods, and a workload that keeps the caches filled."""
    stage.node(2, cpu_milli=200_000, memory_mib=1_000_000, max_pods=200)
    stage.submit("long", roles=ONE_CPU)
    run_pending(stage)


@contextmanager
def rejecting(table: str, condition: str) -> Iterator[None]:
    """Make the database reject rows of the table that do not satisfy the condition."""
    with connection.cursor() as cursor:
        cursor.execute(f"ALTER TABLE {table} ADD CONSTRAINT rejected CHECK ({condition}) NOT VALID")
    try:
        yield
    finally:
        with connection.cursor() as cursor:
            cursor.execute(f"ALTER TABLE {table} DROP CONSTRAINT rejected")


def logged(caplog: pytest.LogCaptureFixture, text: str) -> bool:
    return any(text in record.getMessage() for record in caplog.records)
