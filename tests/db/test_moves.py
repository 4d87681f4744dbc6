"""Tests for compare-and-set updates of a column, in one row and in many."""

from datetime import UTC, datetime

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test.utils import CaptureQueriesContext

from berth.db.writes.moves import RowChange, change_rows, compare_and_set

pytestmark = pytest.mark.django_db


def test_second_conditional_update_returns_false() -> None:
    User.objects.create(username="alice", first_name="pending")
    first, second = User.objects.get(), User.objects.get()
    assert compare_and_set(first, "first_name", expected=["pending"], to="starting", last_name="now")
    assert not compare_and_set(second, "first_name", expected=["pending"], to="cancelled")
    assert (first.first_name, first.last_name) == ("starting", "now")
    assert second.first_name == "pending"
    assert User.objects.get().first_name == "starting"


def test_conditional_update_accepts_any_of_the_expected_values() -> None:
    user = User.objects.create(username="alice", first_name="starting")
    assert compare_and_set(user, "first_name", expected={"pending", "starting"}, to="running")


def test_deleted_row_is_not_updated() -> None:
    user = User.objects.create(username="alice", first_name="pending")
    User.objects.all().delete()
    assert not compare_and_set(user, "first_name", expected=["pending"], to="starting")


def test_rows_are_updated_in_one_query_per_set_of_columns() -> None:
    alice, bob, carol, dave = (
        User.objects.create(username=name, first_name="pending") for name in ("alice", "bob", "carol", "dave")
    )
    joined = datetime(2026, 6, 1, 12, 0, 0, 123456, tzinfo=UTC)
    changes = [
        RowChange(alice.pk, ["pending"], {"first_name": "starting", "last_login": joined}),
        RowChange(bob.pk, ["pending", "starting"], {"first_name": "running", "last_login": None}),
        RowChange(carol.pk, ["running"], {"first_name": "ended"}),
        RowChange(dave.pk, ["pending"], {"first_name": "ended"}),
    ]
    with CaptureQueriesContext(connection) as queries:
        assert change_rows(User, "first_name", changes) == {alice.pk, bob.pk, dave.pk}
    assert len(queries) == 2
    rows = User.objects.order_by("username").values_list("first_name", "last_login")
    assert list(rows) == [("starting", joined), ("running", None), ("pending", None), ("ended", None)]


def test_update_expression_uses_the_values_of_the_current_row() -> None:
    user = User.objects.create(username="alice", first_name="pending", last_name="a")
    changes = [RowChange(user.pk, ["pending"], {"first_name": "ended"})]
    assert change_rows(User, "first_name", changes, {"last_name": "current.last_name || 'b'"}) == {user.pk}
    user.refresh_from_db()
    assert (user.first_name, user.last_name) == ("ended", "ab")


def test_update_without_rows_runs_no_query() -> None:
    with CaptureQueriesContext(connection) as queries:
        assert change_rows(User, "first_name", []) == set()
    assert not queries.captured_queries
