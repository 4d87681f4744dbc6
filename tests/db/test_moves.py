"""Tests for compare-and-set on a column."""

import pytest
from django.contrib.auth.models import User

from berth.db.moves import compare_and_set

pytestmark = pytest.mark.django_db


def test_second_update_returns_false() -> None:
    User.objects.create(username="alice", first_name="pending")
    first, second = User.objects.get(), User.objects.get()
    assert compare_and_set(first, "first_name", expected=["pending"], to="starting", last_name="now")
    assert not compare_and_set(second, "first_name", expected=["pending"], to="cancelled")
    assert (first.first_name, first.last_name) == ("starting", "now")
    assert second.first_name == "pending"
    assert User.objects.get().first_name == "starting"


def test_row_is_updated_from_any_expected_value() -> None:
    user = User.objects.create(username="alice", first_name="starting")
    assert compare_and_set(user, "first_name", expected={"pending", "starting"}, to="running")


def test_deleted_row_is_not_updated() -> None:
    user = User.objects.create(username="alice", first_name="pending")
    User.objects.all().delete()
    assert not compare_and_set(user, "first_name", expected=["pending"], to="starting")
