"""Tests for queries that are compiled to SQL once."""

from datetime import timedelta
from unittest.mock import patch

import pytest
from django.db import connection
from django.db.models import Count, DurationField, ExpressionWrapper, F, Q
from django.db.models.sql.compiler import SQLCompiler
from django.test.utils import CaptureQueriesContext

from berth.db.queries.compiled import compiled_once
from projects.models import Department, Event, Project
from tests.support.second_connection import run_on_second_connection

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def projects() -> list[Project]:
    owners = [Department.objects.create(name=f"d{number}") for number in range(2)]
    return [Project.objects.create(name=f"p{number}", department=owners[number % 2]) for number in range(4)]


def test_compiled_query_returns_current_rows_for_new_parameters(projects: list[Project]) -> None:
    query = compiled_once(
        lambda keys, names: (
            Project.objects.select_related("department")
            .filter(Q(department_id__any=keys) | Q(name__any=names))
            .order_by("pk")
        )
    )
    first, second = projects[0].department, projects[1].department
    assert list(query([first.pk], [])) == [projects[0], projects[2]]
    assert list(query([first.pk], ["p3", "unknown"])) == [projects[0], projects[2], projects[3]]
    assert list(query([], [])) == []
    assert list(query([first.pk, second.pk], [])) == projects
    Project.objects.filter(pk=projects[0].pk).update(title="changed")
    with CaptureQueriesContext(connection) as queries:
        row = next(iter(query([], ["p0"])))
        assert (row.title, row.department.name) == ("changed", "d0")
    assert len(queries) == 1


def test_sql_is_compiled_once(projects: list[Project]) -> None:
    query = compiled_once(lambda keys: Project.objects.filter(pk__any=keys).order_by("name"))
    with patch.object(SQLCompiler, "as_sql", autospec=True, side_effect=SQLCompiler.as_sql) as composed:
        for project in projects:
            assert list(query([project.pk])) == [project]
    assert composed.call_count == 1


def test_queries_with_values_and_aggregates_are_compiled(projects: list[Project]) -> None:
    query = compiled_once(
        lambda names: (
            Project.objects.filter(name__any=names)
            .values_list("department__name")
            .annotate(Count("pk"))
            .order_by("department__name")
        )
    )
    assert list(query(["p0", "p1", "p2"])) == [("d0", 2), ("d1", 1)]
    assert list(query(["p1"])) == [("d1", 1)]


def test_json_columns_are_decoded(projects: list[Project]) -> None:
    Event.objects.create(kind="k", subject="s", message="m", actor="a", data={"n": [1]})
    query = compiled_once(lambda: Event.objects.filter(kind="k"))
    assert [row.data for row in query()] == [{"n": [1]}]
    assert [row.data for row in query()] == [{"n": [1]}]


def test_each_thread_uses_its_own_connection(projects: list[Project]) -> None:
    query = compiled_once(lambda: Project.objects.order_by("pk"))
    assert list(query()) == projects
    assert run_on_second_connection(lambda: list(query())) == projects


@pytest.mark.parametrize("planned_once", [True, False])
def test_compiled_filters_accept_single_values(projects: list[Project], planned_once: bool) -> None:
    times = [row.created_at for row in projects]
    query = compiled_once(
        lambda since, pk: (
            Project.objects.filter(created_at__gte=since, pk__lt=pk)
            .annotate(age=ExpressionWrapper(since - F("created_at"), DurationField()))
            .order_by("pk")
        ),
        planned_once=planned_once,
    )
    assert list(query(times[1], projects[3].pk)) == projects[1:3]
    assert list(query(times[2], projects[3].pk)) == projects[2:3]
    assert [row.age for row in query(times[2], projects[3].pk)] == [timedelta()]
