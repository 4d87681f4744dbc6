"""Tests for usage reports and budgets over REST."""

import csv
import io
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone

from projects.models import BudgetWarning
from projects.services.quotas import budgets
from scheduler.models import UsageHour
from scheduler.reports.usage.budgets import budget_statuses, record_budget_warnings
from tests.api.conftest import Caller
from tests.cast import Cast

MID_JUNE = datetime(2026, 6, 16, tzinfo=UTC)  # half of June has passed
NEW = {"If-None-Match": "*"}
VISION_BUDGET = "budgets/projects/vision"


@pytest.fixture
def create_usage_hour(cast: Cast) -> Callable[..., UsageHour]:
    def make(at: datetime, gpu_hours: float, project: str = "vision", user_name: str = "dave") -> UsageHour:
        owner = getattr(cast, project)
        return UsageHour.objects.create(
            hour=at, pool_id=cast.pool.pk, pool_name="local", department_id=owner.department_id,
            department_name=owner.department.name, project_id=owner.pk, project_name=owner.name,
            user_name=user_name, gpu_milli_seconds=round(gpu_hours * 3_600_000),
        )  # fmt: skip

    return make


def test_report_is_grouped_by_user_and_paginated(
    alice: Caller, create_usage_hour: Callable[..., UsageHour]
) -> None:
    begin = datetime(2026, 6, 1, tzinfo=UTC)
    for number in range(5):
        create_usage_hour(begin + timedelta(days=number), number + 1)
    query = {
        "since": "2026-06-01T00:00:00Z",
        "until": "2026-06-06T00:00:00Z",
        "step": "day",
        "group_by": "user",
    }
    first = alice.get("usage", **query, limit="2").json()
    assert first["total"]["gpu_hours"] == 15
    assert [item["gpu_hours"] for item in first["items"]] == [1, 2]
    assert first["items"][0] == {
        "at": "2026-06-01T00:00:00Z", "department": None, "project": None, "user": "dave", "pool": None,
        "gpu_hours": 1.0, "cpu_hours": 0.0, "memory_gib_hours": 0.0, "cost": None,
    }  # fmt: skip
    second = alice.get("usage", **query, limit="2", cursor=first["next"]).json()
    third = alice.get("usage", **query, limit="2", cursor=second["next"]).json()
    assert [item["gpu_hours"] for item in second["items"] + third["items"]] == [3, 4, 5]
    assert third["next"] is None


@pytest.mark.heavy
def test_csv_report_escapes_formulas(alice: Caller, create_usage_hour: Callable[..., UsageHour]) -> None:
    create_usage_hour(timezone.now() - timedelta(hours=3), 4, user_name="=HYPERLINK()")
    answer = alice.get("usage", group_by=["project", "user"], format="csv")
    assert answer["Content-Type"].startswith("text/csv")
    rows = list(csv.reader(io.StringIO(b"".join(answer.streaming_content).decode())))
    assert rows[0] == ["project", "user", "gpu_hours", "cpu_hours", "memory_gib_hours", "cost"]
    assert rows[1][:3] == ["vision", "'=HYPERLINK()", "4.0"]


@pytest.mark.parametrize(
    ("query", "path"),
    [
        ({"group_by": "node"}, "group_by[0]"),
        ({"step": "year"}, "step"),
        ({"time_zone": "Nowhere"}, "time_zone"),
        ({"since": "yesterday"}, "since"),
        ({"cursor": "abc"}, "cursor"),
        ({"since": "2026-06-02T00:00:00Z", "until": "2026-06-01T00:00:00Z"}, "since"),
    ],
)
def test_error_names_the_invalid_report_parameter(alice: Caller, query: dict[str, str], path: str) -> None:
    answer = alice.get("usage", **query)
    assert (answer.status_code, [error["path"] for error in answer.json()["errors"]]) == (422, [path])


def test_budget_is_created_read_edited_and_deleted_with_an_etag(bob: Caller) -> None:
    made = bob("PUT", VISION_BUDGET, {"gpu_hours": 500}, headers=NEW)
    assert (made.status_code, made.json()["warn_at"]) == (201, [80, 100])
    read = bob.get(VISION_BUDGET)
    assert read["ETag"] == made["ETag"]
    changed = bob("PUT", VISION_BUDGET, {"warn_at": [90, 50]}, headers={"If-Match": read["ETag"]})
    assert (changed.json()["gpu_hours"], changed.json()["warn_at"]) == (500, [50, 90])
    assert bob("PUT", VISION_BUDGET, {"gpu_hours": 1}, headers={"If-Match": read["ETag"]}).status_code == 412
    assert bob("PUT", VISION_BUDGET, {"gpu_hours": 1}).status_code == 428
    assert bob("DELETE", VISION_BUDGET, headers={"If-Match": changed["ETag"]}).status_code == 204
    again = bob("PUT", VISION_BUDGET, {"gpu_hours": 500}, headers=NEW)
    assert again["ETag"] not in (made["ETag"], changed["ETag"])


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({}, "gpu_hours"),
        ({"gpu_hours": 0}, "gpu_hours"),
        ({"gpu_hours": 1.5}, "gpu_hours"),
        ({"gpu_hours": True}, "gpu_hours"),
        ({"gpu_hours": 5, "warn_at": 80}, "warn_at"),
        ({"gpu_hours": 5, "warn_at": [0]}, "warn_at"),
        ({"gpu_hours": 5, "warn_at": [80, 1000]}, "warn_at"),
        ({"gpu_hours": -5}, "gpu_hours"),
        ({"gpu_hours": 5, "hours": 3}, "hours"),
    ],
)
def test_error_names_the_invalid_budget_field(bob: Caller, body: dict[str, Any], path: str) -> None:
    answer = bob("PUT", VISION_BUDGET, body, headers=NEW)
    assert (answer.status_code, [error["path"] for error in answer.json()["errors"]]) == (422, [path])


def test_forecast_extrapolates_the_last_seven_days(
    cast: Cast, create_usage_hour: Callable[..., UsageHour]
) -> None:
    budget = budgets.set_budget(actor=cast.alice, owner=cast.research, values={"gpu_hours": 1000})
    create_usage_hour(datetime(2026, 5, 31, 23, tzinfo=UTC), 999)  # hour of the previous month
    create_usage_hour(datetime(2026, 6, 1, tzinfo=UTC), 100)
    # Hour with half a GPU for seven days.
    create_usage_hour(datetime(2026, 6, 12, tzinfo=UTC), 84, project="speech")
    create_usage_hour(datetime(2026, 6, 12, tzinfo=UTC), 500, project="ads")  # hour of another department
    (status,) = budget_statuses([budget], MID_JUNE)
    assert (status.used, status.percent) == (184, 18.4)
    assert status.forecast == pytest.approx(184 + 0.5 * 24 * 15)


@pytest.mark.heavy
def test_forecast_uses_only_complete_hours(cast: Cast, create_usage_hour: Callable[..., UsageHour]) -> None:
    # At half past the hour, the first of the seven days' hours counts in full for both usage and time.
    budget = budgets.set_budget(actor=cast.alice, owner=cast.research, values={"gpu_hours": 1000})
    for back in range(1, 8 * 24):
        create_usage_hour(MID_JUNE - timedelta(hours=back), 2)
    create_usage_hour(MID_JUNE, 1)
    (status,) = budget_statuses([budget], MID_JUNE + timedelta(minutes=30))
    assert status.pace == pytest.approx(2)


@pytest.mark.heavy
def test_each_budget_warning_is_sent_at_most_once_per_month(
    cast: Cast, create_usage_hour: Callable[..., UsageHour]
) -> None:
    budgets.set_budget(actor=cast.alice, owner=cast.vision, values={"gpu_hours": 100})
    create_usage_hour(datetime(2026, 6, 2, tzinfo=UTC), 79)
    assert record_budget_warnings(MID_JUNE) == 0
    create_usage_hour(datetime(2026, 6, 3, tzinfo=UTC), 1)
    assert record_budget_warnings(MID_JUNE) == 1
    assert record_budget_warnings(MID_JUNE) == 0
    create_usage_hour(datetime(2026, 6, 4, tzinfo=UTC), 40)
    assert record_budget_warnings(MID_JUNE) == 1
    assert list(BudgetWarning.objects.values_list("percent", flat=True)) == [100, 80]
    create_usage_hour(datetime(2026, 7, 1, tzinfo=UTC), 85)
    assert record_budget_warnings(MID_JUNE + timedelta(days=30)) == 1
