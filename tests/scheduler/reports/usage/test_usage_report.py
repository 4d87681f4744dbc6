"""Tests that usage reports add up exactly."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from berth.core.errors import Invalid
from pools.models import PoolPrice
from projects.actor import Actor
from projects.services import tenants, workloads
from scheduler.models import UsageHour
from scheduler.reports.usage.allocation_hours import release_allocations
from scheduler.reports.usage.query import usage_request
from scheduler.reports.usage.report import ReportStep, UsageDimension, UsageRow, sum_rows, usage_report
from tests.scheduler.stage import NOON, Stage

TWO = [{"name": "worker", "replicas": 2, "gpu": 1}]
HALF = [{"name": "worker", "replicas": 1, "gpu": 0.5}]


def usage_rows(stage: Stage, actor: Actor | None = None, **words: Any) -> list[UsageRow]:
    now = stage.clock.now()
    words = {"since": NOON - timedelta(days=1), "until": now, **words}
    return usage_report(actor or stage.cast.alice, usage_request(now, **words), now)


def gpu_hours(rows: list[UsageRow], dimension: UsageDimension) -> dict[str, float]:
    return {row.names[dimension]: round(row.gpu_hours, 6) for row in rows}


def start_workload(stage: Stage, name: str = "train-1", **changes: Any) -> datetime:
    stage.submit(name, **changes)
    begun = stage.clock.now()
    stage.tick(2)
    return begun


def test_usage_grows_only_while_the_pod_runs(stage: Stage) -> None:
    workload = stage.submit(roles=TWO)
    begun = stage.clock.now()
    stage.tick(2)
    stage.clock.advance(5400)
    assert sum_rows(usage_rows(stage)).gpu_hours == pytest.approx(2 * 1.5)
    stage.finish(workload)
    stage.tick()
    held = (stage.clock.now() - begun).total_seconds() / 3600
    stage.clock.advance(7200)
    assert sum_rows(usage_rows(stage)).gpu_hours == pytest.approx(2 * held)


def test_stored_hours_and_running_pods_are_not_counted_twice(stage: Stage) -> None:
    first = stage.submit("first", roles=HALF)
    stage.submit("second", roles=HALF)
    stage.tick(2)
    stage.clock.advance(1800)
    stage.finish(first)
    stage.tick()
    stage.clock.advance(1800)
    (row,) = usage_rows(stage)
    assert row.gpu_hours == pytest.approx(0.5 * 0.5 + 0.5 * 1.0, rel=1e-3)


def test_repeated_end_report_of_a_pod_counts_once(stage: Stage) -> None:
    workload = stage.submit(roles=TWO)
    stage.tick(2)
    stage.clock.advance(3600)
    stage.finish(workload)
    stage.tick()
    once = list(UsageHour.objects.values_list("hour", "gpu_milli_seconds"))
    release_allocations([pod.pk for pod in stage.pods(workload)], stage.clock.now() + timedelta(hours=1))
    assert list(UsageHour.objects.values_list("hour", "gpu_milli_seconds")) == once


def test_usage_is_grouped_by_department_project_user_and_pool(stage: Stage) -> None:
    cast = stage.cast
    stage.submit("of-alice", roles=HALF)
    workloads.submit(
        actor=cast.grace, project=cast.ads, now=stage.clock.now(),
        document={"name": "of-grace", "command": "true", "roles": TWO},
    )  # fmt: skip
    stage.tick(2)
    stage.clock.advance(3600)
    assert gpu_hours(usage_rows(stage, group_by=["user"]), UsageDimension.USER) == {
        "grace": 2.0,
        "alice": 0.5,
    }
    departments = gpu_hours(usage_rows(stage, group_by=["department"]), UsageDimension.DEPARTMENT)
    assert departments == {"product": 2.0, "research": 0.5}
    assert gpu_hours(usage_rows(stage, group_by=["project"]), UsageDimension.PROJECT) == {
        "ads": 2.0,
        "vision": 0.5,
    }
    assert gpu_hours(usage_rows(stage, group_by=["pool"]), UsageDimension.POOL) == {"local": 2.5}
    assert gpu_hours(
        usage_rows(stage, group_by=["pool"], only={"project": "vision"}), UsageDimension.POOL
    ) == {"local": 0.5}


def test_users_see_only_the_usage_of_their_own_projects(stage: Stage) -> None:
    cast = stage.cast
    start_workload(stage, "of-vision", roles=HALF)
    start_workload(stage, "of-ads", project=cast.ads, roles=HALF)
    stage.clock.advance(3600)
    seen = {name: set(gpu_hours(usage_rows(stage, who, group_by=["project"]), UsageDimension.PROJECT))
            for name, who in cast.people.items()}  # fmt: skip
    both, vision = {"vision", "ads"}, {"vision"}
    assert seen == {"alice": both, "bob": vision, "carol": vision, "dave": vision, "erin": vision,
                    "frank": set(), "grace": {"ads"}}  # fmt: skip


@pytest.mark.heavy
def test_report_days_use_the_users_time_zone(stage: Stage) -> None:
    start_workload(stage, roles=HALF)
    stage.clock.advance(24 * 3600)
    days = usage_rows(stage, step="day", time_zone="Asia/Tokyo")
    tokyo = ZoneInfo("Asia/Tokyo")
    assert [row.at and row.at.astimezone(tokyo).hour for row in days] == [0, 0]
    # Noon UTC is 21:00 in the time zone of this test.
    assert [row.gpu_hours for row in days] == pytest.approx([0.5 * 3, 0.5 * 21], rel=1e-3)
    assert sum_rows(days).gpu_hours == pytest.approx(sum_rows(usage_rows(stage, step="hour")).gpu_hours)


def test_usage_outside_the_requested_period_is_excluded(stage: Stage) -> None:
    start_workload(stage, roles=HALF)
    stage.clock.advance(10 * 3600)
    rows = usage_rows(stage, since=NOON + timedelta(hours=2), until=NOON + timedelta(hours=5))
    assert sum_rows(rows).gpu_hours == pytest.approx(0.5 * 3)


@pytest.mark.heavy
def test_usage_of_a_deleted_project_is_still_reported(stage: Stage) -> None:
    cast = stage.cast
    workload = stage.submit(roles=TWO, project=cast.search)
    stage.tick(2)
    stage.clock.advance(3600)
    stage.finish(workload)
    stage.tick()
    workload.refresh_from_db()
    workloads.delete(actor=cast.alice, workload=workload)
    tenants.delete_project(actor=cast.alice, project=cast.search)
    assert gpu_hours(usage_rows(stage, group_by=["project"]), UsageDimension.PROJECT)[
        "search"
    ] == pytest.approx(2.0, rel=1e-3)


def test_cost_uses_the_pools_price_and_is_unknown_without_a_price(stage: Stage) -> None:
    start_workload(stage, roles=TWO)
    stage.clock.advance(3600)
    unpriced = sum_rows(usage_rows(stage))
    assert (unpriced.cost, unpriced.known_cost) == (None, Decimal(0))
    assert unpriced.unpriced == {stage.cast.pool.name}
    stage.cast.pool.price_per_gpu_hour = Decimal("1.50")
    stage.cast.pool.save()
    assert sum_rows(usage_rows(stage)).cost == Decimal("3.00")
    assert sum_rows([]).cost == 0


@pytest.mark.parametrize(
    ("words", "path"),
    [
        ({"since": NOON, "until": NOON}, "since"),
        ({"since": NOON - timedelta(days=90), "until": NOON, "step": "hour"}, "step"),
        ({"group_by": ["pool", "pool"]}, "group_by"),
        ({"time_zone": "Mars/Olympus"}, "time_zone"),
        ({"time_zone": "../../etc/passwd"}, "time_zone"),
    ],
)
def test_error_for_an_invalid_query_names_the_parameter(words: dict[str, Any], path: str) -> None:
    with pytest.raises(Invalid) as rejected:
        usage_request(datetime(2026, 6, 2, tzinfo=UTC), **words)
    assert [problem.path for problem in rejected.value.problems] == [path]


@pytest.mark.heavy
def test_report_weeks_start_on_monday_and_months_on_the_first(stage: Stage) -> None:
    start_workload(stage, roles=HALF)  # 1 June 2026 is a Monday
    stage.clock.advance(8 * 86_400)
    assert [row.at and row.at.day for row in usage_rows(stage, step="week")] == [1, 8]
    assert [row.at and (row.at.month, row.at.day) for row in usage_rows(stage, step=ReportStep.MONTH)] == [
        (6, 1)
    ]


@pytest.mark.heavy
def test_each_hour_is_priced_at_its_start(stage: Stage) -> None:
    # Two GPUs run for three hours. After the second hour, the price doubles.
    stage.cast.pool.price_per_gpu_hour = Decimal(4)
    stage.cast.pool.save()
    stage.submit(roles=TWO)
    stage.tick(2)
    stage.clock.advance(3 * 3600 - 3)
    PoolPrice.objects.create(pool=stage.cast.pool, until=NOON + timedelta(hours=2), price_per_gpu_hour=2)
    rows = usage_rows(stage, step=ReportStep.HOUR)
    assert [row.cost for row in rows] == [Decimal("4.00"), Decimal("4.00"), Decimal("8.00")]
    assert sum_rows(usage_rows(stage)).cost == Decimal("15.99")  # without the first seconds
