"""Tests that the numbers on the overview match the database rows."""

from datetime import timedelta

import pytest

from projects.models import Project, Workload
from scheduler.models import QueueStatus
from scheduler.reports.queues.pending_times import pending_times
from scheduler.reports.queues.starved import find_shortfalls
from scheduler.reports.usage.pool_hours import hourly_allocations
from scheduler.reports.utilization.over_time import MeanGpus, UtilizationHour, hourly_utilization, mean_gpus
from tests.scheduler.arrays.test_arrays import submit_array
from tests.scheduler.stage import NOON, Stage

ONE = [{"name": "worker", "replicas": 1, "gpu": 1}]


def test_overview_has_capacity_and_allocated_gpus_per_hour(stage: Stage) -> None:
    stage.cast.pool.nodes.update(created_at=NOON - timedelta(hours=1))
    type(stage.cast.pool).objects.update(created_at=NOON - timedelta(hours=2))
    stage.cast.pool.refresh_from_db()
    stage.submit(roles=ONE)
    stage.tick(2)
    stage.clock.advance(5400)
    course = hourly_allocations([stage.cast.pool], stage.clock.now(), 4)
    assert [hour.at.hour for hour in course] == [10, 11, 12, 13]
    assert [round(hour.allocated, 2) for hour in course] == pytest.approx([0, 0, 1, 0.5], abs=0.02)
    assert [round(hour.total, 2) for hour in course] == pytest.approx([0, 0, 4, 2], abs=0.02)


@pytest.mark.heavy
def test_pending_times_include_only_recent_starts_visible_to_the_user(stage: Stage) -> None:
    for number, waited in enumerate((10, 20, 30, 1000)):
        workload = stage.submit(f"w{number}", roles=ONE)
        workload.pool = stage.cast.pool
        workload.first_started_at = workload.submitted_at + timedelta(seconds=waited)
        workload.save()
    pools = [stage.cast.pool]
    times = pending_times(stage.cast.dave, pools, NOON)
    assert (times.started, times.median) == (4, 25.0)
    assert times.p95 == pytest.approx(854.5)
    assert times.longest == 1000 and not times.has_percentiles
    assert pending_times(stage.cast.grace, pools, NOON).median is None
    assert pending_times(stage.cast.dave, pools, NOON + timedelta(hours=1)).started == 0


def status(stage: Stage, project: Project, *, share: int, allocated: int, requested: int) -> None:
    QueueStatus.objects.create(
        pool=stage.cast.pool, project=project, share=[share, 0, 0], allocated=[allocated, 0, 0],
        requested=[requested, 0, 0], usage=[0, 0, 0], at=NOON,
    )  # fmt: skip


def test_queue_below_its_fair_share_is_listed_with_the_queues_that_are_over_quota(stage: Stage) -> None:
    cast = stage.cast
    status(stage, cast.vision, share=4000, allocated=1000, requested=9000)
    status(stage, cast.speech, share=2000, allocated=500, requested=500)  # this project has no further demand
    status(stage, cast.ads, share=1000, allocated=3000, requested=3000)
    (rows,) = find_shortfalls(cast.alice, [cast.pool])
    assert (rows.project, rows.below_share) == ("vision", 3000)
    held = [(borrower.project, borrower.over_quota) for borrower in rows.borrowers]
    assert held == [("ads", 3000), ("speech", 500)]
    (own,) = find_shortfalls(cast.dave, [cast.pool])
    assert (own.project, own.borrowers) == ("vision", ())


@pytest.mark.heavy
def test_current_hour_includes_allocated_gpus(stage: Stage) -> None:
    # In the first six minutes of an hour, one GPU is one GPU on average, not a tenth of a GPU.
    stage.cast.pool.nodes.update(created_at=NOON - timedelta(hours=1))
    type(stage.cast.pool).objects.update(created_at=NOON - timedelta(hours=2))
    stage.cast.pool.refresh_from_db()
    stage.submit(roles=ONE)
    stage.tick(2)
    stage.clock.advance(3960)
    now = stage.clock.now()
    hours = hourly_utilization([stage.cast.pool], now, 2)
    before, present = (mean_gpus(hour, now) for hour in hours)
    assert (round(before.allocated, 2), round(before.total, 2)) == pytest.approx((1, 4), abs=0.02)
    assert (round(present.allocated, 2), round(present.total, 2)) == pytest.approx((1, 4), abs=0.02)


def test_new_hour_causes_no_division_by_zero() -> None:
    hour = UtilizationHour(NOON, total=0.0, allocated=0.0, measured=0.0, used=0.0, begin=NOON)
    assert mean_gpus(hour, NOON) == MeanGpus(NOON, 0.0, 0.0, 0.0, 0.0)


@pytest.mark.heavy
def test_mean_gpu_count_excludes_the_time_before_the_first_node(stage: Stage) -> None:
    # Five minutes after the first node, all of its GPUs count, not a twelfth of them.
    now, first = NOON + timedelta(minutes=40), NOON + timedelta(minutes=35)
    pool = stage.cast.pool
    type(pool).objects.update(created_at=NOON - timedelta(hours=2))
    pool.refresh_from_db()
    pool.nodes.update(created_at=first, since=first)
    before, present = (mean_gpus(hour, now) for hour in hourly_utilization([pool], now, 2))
    assert before.total == 0
    assert round(present.total, 2) == 4


@pytest.mark.heavy
def test_hourly_means_cover_hours_before_the_first_stored_node(stage: Stage) -> None:
    # The capacity history may begin after the usage history, because its nodes are deleted earlier.
    pool = stage.cast.pool
    type(pool).objects.update(created_at=NOON - timedelta(hours=2))
    pool.refresh_from_db()
    stage.submit(roles=ONE)
    stage.tick(2)
    first = NOON + timedelta(hours=2, minutes=50)
    pool.nodes.update(created_at=first, since=first)
    now = NOON + timedelta(hours=3)
    assert [hour.begin for hour in hourly_allocations([pool], now, 4)] == [
        NOON + timedelta(hours=number) for number in range(4)
    ]


def test_pending_times_exclude_tasks_that_wait_for_earlier_tasks(stage: Stage) -> None:
    limited = submit_array(stage, "limited", array={"tasks": 3, "max_running": 1})
    unlimited = submit_array(stage, "unlimited", array={"tasks": 2})
    tasks = Workload.objects.filter(array__in=[limited, unlimited])
    tasks.update(first_started_at=stage.clock.now(), pool=stage.cast.pool)
    assert pending_times(stage.cast.dave, [stage.cast.pool], NOON).started == 2
