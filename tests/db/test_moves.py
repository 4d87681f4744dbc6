"""The second of two concurrent changes learns that it was late."""

import pytest
from django.contrib.auth.models import User

from berth.db.moves import move

pytestmark = pytest.mark.django_db


def test_the_first_mover_wins_and_the_second_is_told() -> None:
    User.objects.create(username="alice", first_name="pending")
    one, other = User.objects.get(), User.objects.get()
    assert move(one, "first_name", expected=["pending"], to="starting", last_name="now")
    assert not move(other, "first_name", expected=["pending"], to="cancelled")
    assert (one.first_name, one.last_name) == ("starting", "now")
    assert other.first_name == "pending"
    assert User.objects.get().first_name == "starting"


def test_any_of_the_expected_values_will_do() -> None:
    user = User.objects.create(username="alice", first_name="starting")
    assert move(user, "first_name", expected={"pending", "starting"}, to="running")


def test_a_row_that_is_gone_is_not_moved() -> None:
    user = User.objects.create(username="alice", first_name="pending")
    User.objects.all().delete()
    assert not move(user, "first_name", expected=["pending"], to="starting")
