"""Tests for `berth subscription edit`."""

import json

import pytest

from projects.models import Subscription
from projects.services.notifications.subscriptions import subscribe
from tests.cast import Cast
from tests.cli.conftest import Berth, token_of

pytestmark = pytest.mark.django_db(transaction=True)


def test_subscription_is_edited_without_changing_other_values(berth: Berth, cast: Cast) -> None:
    row = subscribe(actor=cast.carol, scope=cast.vision, to="team@example.org", events=["failed"])
    carol, number = {"BERTH_TOKEN": token_of(cast.carol)}, str(row.pk)
    edited = berth(
        "subscription", "edit", number, "--on", "failed,pending", "--minutes", "30", "-o", "json", **carol
    )
    assert edited.returncode == 0, edited.stderr
    shown = json.loads(edited.stdout)
    assert (shown["events"], shown["pending_minutes"]) == (["failed", "pending"], 30)
    assert berth("subscription", "edit", number, "--to", "new@example.org", **carol).returncode == 0
    row = Subscription.objects.get()
    assert (row.to, row.events, row.pending_minutes) == ("new@example.org", ["failed", "pending"], 30)
    other = berth("subscription", "edit", number, "--minutes", "5", BERTH_TOKEN=token_of(cast.dave))
    assert other.returncode == 4, "another user's subscription"
