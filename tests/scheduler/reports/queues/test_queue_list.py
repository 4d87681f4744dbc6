"""Tests that the visible part of a pool's queue is in the order of the last cycle."""

from operator import attrgetter

import pytest

from projects.models import Workload
from projects.services import workloads
from scheduler.models import Eviction
from scheduler.reports.evictions.matrix import ProjectPair, build_matrix, totals_by_project_pair
from scheduler.reports.queues.queue_list import NOT_EVALUATED, queue_length, queued_workloads
from tests import factories as make
from tests.scheduler.stage import Stage
from tests.support.present import present

queue_position = attrgetter("queue_position")  # the query adds this annotation
ALL = [{"name": "worker", "replicas": 2, "gpu": 2}]


def fill_cluster(stage: Stage) -> None:
    """Fill two nodes of two GPUs. One workload of vision and two of ads are pending."""
    stage.submit("holds", roles=ALL, priority=200)
    stage.tick(2)
    stage.submit("ours", roles=ALL)
    stage.submit("first", project=stage.cast.ads, roles=ALL, priority=90)
    stage.submit("second", project=stage.cast.ads, roles=ALL, priority=60)
    stage.tick()


def test_queue_shows_the_order_and_sort_keys_of_the_last_cycle(stage: Stage) -> None:
    fill_cluster(stage)
    rows = list(queued_workloads(stage.cast.alice, stage.cast.pool))
    assert [queue_position(row) for row in rows] == [1, 2, 3]
    ads = [row.name for row in rows if row.project == stage.cast.ads]
    assert ads == ["first", "second"]
    assert all(present(row.explanation)["ordering"] for row in rows)


def test_queue_positions_count_invisible_workloads(stage: Stage) -> None:
    fill_cluster(stage)
    pool = stage.cast.pool
    everywhere = {row.name: queue_position(row) for row in queued_workloads(stage.cast.alice, pool)}
    grace = [(row.name, queue_position(row)) for row in queued_workloads(stage.cast.grace, pool)]
    assert grace == [(name, everywhere[name]) for name in ("first", "second")]
    assert list(queued_workloads(stage.cast.frank, stage.cast.pool)) == []
    length = queue_length(stage.cast.pool)
    assert (length.workloads, length.gpu_milli) == (3, 12_000)


@pytest.mark.heavy
def test_new_workload_is_listed_last_until_the_next_cycle(stage: Stage) -> None:
    fill_cluster(stage)
    stage.submit("new", priority=99)
    last = list(queued_workloads(stage.cast.alice, stage.cast.pool))[-1]
    assert (last.name, queue_position(last)) == ("new", NOT_EVALUATED)


@pytest.mark.heavy
def test_cancelled_workload_leaves_the_queue(stage: Stage) -> None:
    fill_cluster(stage)
    workloads.cancel(actor=stage.cast.alice, workload=Workload.objects.get(name="first"))
    assert "first" not in [row.name for row in queued_workloads(stage.cast.alice, stage.cast.pool)]


def test_evictions_are_summed_by_victim_and_preemptor(stage: Stage) -> None:
    cast = stage.cast
    ours, theirs = (make.workload(project, "w") for project in (cast.vision, cast.ads))
    for lost_gpu_seconds in (600, 1200):
        make.eviction(ours, theirs, cast.pool, lost_gpu_seconds=lost_gpu_seconds)
    make.eviction(theirs, ours, cast.pool, lost_gpu_seconds=60)
    make.eviction(ours, None, cast.pool, kind="drain", lost_gpu_seconds=30)
    totals = totals_by_project_pair(Eviction.objects.all())
    assert [(p.victim, p.preemptor, p.count, p.lost_gpu_seconds) for p in totals] == [
        ("vision", "ads", 2, 1800), ("ads", "vision", 1, 60), ("vision", "", 1, 30),
    ]  # fmt: skip
    drawn = build_matrix(totals)
    assert drawn.preemptors == ("ads", "vision", "")
    assert [(name, [pair and pair.count for pair in cells]) for name, cells in drawn.rows] == [
        ("ads", [None, 1, None]), ("vision", [2, None, 1]),
    ]  # fmt: skip


def test_large_eviction_matrix_shows_the_largest_losses_and_counts_omitted_pairs() -> None:
    totals = [ProjectPair(f"a{n:02}", f"b{n:02}", 1, 1000, n) for n in range(20)] + [
        ProjectPair("a19", "b00", 1, 1000, 1)
    ]
    table = build_matrix(totals)
    assert (len(table.victims), table.victims[0], table.victims[-1]) == (12, "a08", "a19")
    assert (table.preemptors[0], table.preemptors[-1]) == ("b08", "b19")
    assert table.omitted == 9
    assert build_matrix(totals[:3]).omitted == 0
