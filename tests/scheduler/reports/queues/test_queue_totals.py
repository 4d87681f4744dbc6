"""Tests that the cost of counting queue totals depends on current allocations, not on past workloads."""

import re
from datetime import datetime

import pytest
from django.db import connection

from pools.models import Node
from projects.models import Phase, Pod, PodState, Project, Workload
from scheduler.models import Allocation
from scheduler.reports.queues.queue_totals import TOTALS_BY_QUEUE, totals_by_queue
from tests import factories as make
from tests.cast import Cast, make_cast

ENDED = 2000


@pytest.fixture
def cast(db: None) -> Cast:
    return make_cast()


def create_ended_workloads(project: Project, node: Node, at: datetime) -> None:
    """Create ended workloads that had one GPU each, and update the database statistics."""
    columns = {"pools": [node.pool.name], "phase": Phase.COMPLETED, "ended_at": at, "since": at}
    workloads = Workload.objects.bulk_create(
        Workload(project=project, name=f"ended-{number}", spec={}, submitted_at=at, **columns)
        for number in range(ENDED)
    )
    pods = Pod.objects.bulk_create(
        Pod(
            workload=workload,
            role="worker",
            index=0,
            rank=0,
            run=1,
            node=node,
            state=PodState.SUCCEEDED,
            ended_at=at,
        )
        for workload in workloads
    )
    Allocation.objects.bulk_create(
        Allocation(pod=pod, node=node, devices=[7], gpu_milli=1000, bound_at=at, released_at=at)
        for pod in pods
    )
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE projects_workload, projects_pod, scheduler_allocation")


@pytest.mark.heavy
def test_totals_are_counted_without_reading_all_workloads_or_ended_pods(cast: Cast) -> None:
    node = make.node(cast.pool, gpus=8)
    running = make.workload(cast.vision, "running", replicas=2, phase=Phase.RUNNING, pools=[cast.pool.name])
    for device in range(2):
        make.place(running, node, [device])
    create_ended_workloads(cast.vision, node, make.ago(minutes=5))
    assert totals_by_queue()[cast.pool.pk, (None, cast.vision.pk)].allocated[0] == 2000
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN {TOTALS_BY_QUEUE}", {"pools": None, "preemptible": None})
        plan = "\n".join(line for (line,) in cursor.fetchall())
    assert set(re.findall(r"Seq Scan on (\w+)", plan)).isdisjoint({"projects_workload", "projects_pod"})


@pytest.mark.parametrize("preemptible", [True, False])
def test_totals_can_be_restricted_by_preemptibility(cast: Cast, preemptible: bool) -> None:
    node = make.node(cast.pool, gpus=8)
    for number, kind in enumerate((True, True, False)):
        workload = make.workload(
            cast.vision, f"running-{number}", phase=Phase.RUNNING, pools=[cast.pool.name], preemptible=kind
        )
        make.place(workload, node, [number])
    totals = totals_by_queue([cast.pool], preemptible=preemptible)
    assert totals[cast.pool.pk, (None, cast.vision.pk)].allocated[0] == (2000 if preemptible else 1000)
