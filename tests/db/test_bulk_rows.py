"""Tests for inserting and updating many rows in one query."""

import uuid
from datetime import UTC, datetime
from typing import Any

import pytest
from django.db import DatabaseError, connection, transaction
from django.test.utils import CaptureQueriesContext

from berth.db.writes.bulk_rows import insert_rows, load_related_objects, update_rows
from projects.models import Department, Event, Project

pytestmark = pytest.mark.django_db
NOON = datetime(2026, 6, 1, 12, 0, 0, 123456, tzinfo=UTC)


def event(number: int, **changes: Any) -> Event:
    values = {"kind": "k", "subject": f"w{number}", "message": "it's 100 %s \\ \u20ac", "actor": "alice"}
    return Event(**{**values, "data": {"n": number, "at": None}, **changes})


def test_rows_are_inserted_in_order_in_one_query_and_receive_primary_keys() -> None:
    workload = uuid.uuid4()
    rows = [event(number, workload_id=workload) for number in range(30)]
    with CaptureQueriesContext(connection) as queries:
        insert_rows(rows)
    assert len(queries) == 1
    stored = list(Event.objects.order_by("id"))
    assert [row.pk for row in stored] == [row.pk for row in rows]
    assert [row.subject for row in stored] == [f"w{number}" for number in range(30)]
    assert (stored[3].workload_id, stored[3].data) == (workload, {"n": 3, "at": None})
    assert stored[3].message == rows[3].message
    assert stored[3].project_id is None
    assert stored[3].at is not None, "the database sets the default"


def test_text_that_the_database_cannot_store_raises_an_error() -> None:
    with pytest.raises(DatabaseError), transaction.atomic():
        insert_rows([event(1), event(2, message="NUL \0")])
    assert not Event.objects.exists()


def test_bulk_update_changes_only_the_specified_columns() -> None:
    rows = [Department.objects.create(name=f"d{number}", rank=1) for number in range(3)]
    for number, row in enumerate(rows[:2]):
        row.rank, row.name = number + 5, "unused"
    update_rows(rows[:2], ["rank"])
    assert list(Department.objects.order_by("pk").values_list("name", "rank")) == [
        ("d0", 5), ("d1", 6), ("d2", 1),
    ]  # fmt: skip


def test_rows_with_the_same_foreign_key_share_one_related_object() -> None:
    department = Department.objects.create(name="d")
    Project.objects.bulk_create(Project(name=f"p{number}", department=department) for number in range(3))
    projects = list(Project.objects.order_by("pk"))
    with CaptureQueriesContext(connection) as queries:
        load_related_objects(projects, "department", lambda keys: Department.objects.filter(pk__in=keys))
    assert len(queries) == 1
    assert {id(project.department) for project in projects} == {id(projects[0].department)}
    assert projects[2].department == department
