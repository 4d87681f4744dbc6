"""Tests for loading model instances and timestamps faster than Django."""

from datetime import UTC, datetime

import psycopg
import pytest
from django.db import connection, models

from berth.db.queries import prepared
from projects.models import Department, Project

pytestmark = pytest.mark.django_db


def test_loaded_row_equals_a_row_loaded_by_django() -> None:
    Department.objects.create(name="research", rank=3)
    row = Department.objects.get()
    columns = [field.attname for field in Department._meta.concrete_fields]
    values = list(Department.objects.values_list(*columns).get())
    by_django = models.Model.from_db.__func__(Department, "default", columns, values)  # type: ignore[attr-defined]
    assert {name: getattr(row, name) for name in columns} == {
        name: getattr(by_django, name) for name in columns
    }
    assert (row._state.adding, row._state.db) == (False, "default")


def test_loaded_row_can_be_edited_and_saved() -> None:
    Department.objects.create(name="research")
    row = Department.objects.get()
    row.title = "Research"
    row.save()
    row.refresh_from_db()
    assert (row.title, Department.objects.count()) == ("Research", 1)


def test_deferred_column_is_read_when_it_is_used() -> None:
    Department.objects.create(name="research", title="Research")
    row = Department.objects.only("name").get()
    assert row.get_deferred_fields() >= {"title", "rank"}
    assert row.title == "Research"


def test_related_row_is_replaced_when_its_key_changes() -> None:
    first, second = (Department.objects.create(name=name) for name in ("first", "second"))
    Project.objects.create(name="vision", department=first)
    project = Project.objects.select_related("department").get()
    assert project.department == first
    project.department_id = second.pk
    assert project.department == second


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-02-03 04:05:06+00", datetime(2026, 2, 3, 4, 5, 6, tzinfo=UTC)),
        ("2026-02-03 04:05:06.1+00", datetime(2026, 2, 3, 4, 5, 6, 100_000, tzinfo=UTC)),
        ("2026-02-03 04:05:06.000012+02", datetime(2026, 2, 3, 2, 5, 6, 12, tzinfo=UTC)),
        ("0001-01-01 00:00:00+00", datetime(1, 1, 1, tzinfo=UTC)),
    ],
)
def test_timestamp_is_loaded_exactly_and_in_utc(text: str, expected: datetime) -> None:
    row = prepared.fetch_one("SELECT %s::timestamptz", [text])
    assert row is not None
    loaded = row[0]
    assert (loaded, loaded.tzinfo) == (expected, UTC)
    with connection.cursor() as cursor:
        cursor.execute("SELECT %s::timestamptz", [text])
        assert cursor.fetchone() == (expected,)


def test_timestamp_that_python_cannot_represent_raises_an_error() -> None:
    with pytest.raises(psycopg.DataError, match="timestamp too large"):
        prepared.fetch_one("SELECT 'infinity'::timestamptz", [])
