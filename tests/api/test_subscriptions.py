"""Tests for resending failed deliveries over REST."""

from typing import Any

import pytest
from django_q.models import OrmQ

from projects.models import Audit, Delivery, Membership
from projects.services.notifications import deliveries
from projects.services.notifications.subscriptions import SubscriptionScope, subscribe
from tests import factories as make
from tests.api.conftest import Caller
from tests.cast import Cast


def failed_delivery(cast: Cast, scope: SubscriptionScope, actor: Any, **columns: Any) -> Delivery:
    row = subscribe(actor=actor, scope=scope, to="team@example.org", events=["failed"])
    values: dict[str, Any] = {
        "state": "failed", "ended_at": make.ago(hours=1), "attempts": 8, "last_error": "HTTP status 503",
    }  # fmt: skip
    return Delivery.objects.create(
        kind="failed", subscription_id=row.pk, to=row.to, channel=row.channel,
        content={"event": "failed", "project": "vision", "workload": "train", "message": "exit code 1"},
        next_attempt_at=make.ago(hours=1), **values | columns,
    )  # fmt: skip


def path_of(delivery: Delivery) -> str:
    return f"subscriptions/{delivery.subscription_id}/deliveries/{delivery.pk}"


def test_failed_delivery_is_resent_with_the_same_content_and_id(
    cast: Cast, carol: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    delivery = failed_delivery(cast, cast.vision, cast.carol)
    answer = carol.post(f"{path_of(delivery)}/resend", {})
    assert answer.status_code == 200
    assert answer.json() == carol.get(path_of(delivery)).json()
    assert {key: answer.json()[key] for key in ("id", "state", "attempts", "last_error", "ended_at")} == {
        "id": delivery.pk, "state": "pending", "attempts": 0, "last_error": "", "ended_at": None,
    }  # fmt: skip
    assert OrmQ.objects.count() == 1
    (entry,) = Audit.objects.filter(action="resend")
    assert (entry.actor, entry.after) == ("carol", {"event": "failed", "to": "team@example.org"})

    sent: list[Delivery] = []
    monkeypatch.setattr(deliveries, "send", lambda row, now: sent.append(row))
    assert deliveries.deliver(delivery.pk, make.ago(minutes=-1))
    assert [(row.pk, row.content) for row in sent] == [(delivery.pk, delivery.content)]
    assert carol.get(path_of(delivery)).json()["state"] == "delivered"


@pytest.mark.parametrize(
    ("state", "ended", "reason"),
    [
        ("delivered", True, "It was already delivered."),
        ("pending", False, "It is already in progress, and Berth retries it until it arrives or fails."),
    ],
)
def test_delivery_that_has_not_failed_is_not_resent(
    cast: Cast, carol: Caller, state: str, ended: bool, reason: str
) -> None:
    columns = {"state": state, "ended_at": make.ago(hours=1) if ended else None, "attempts": 1}
    delivery = failed_delivery(cast, cast.vision, cast.carol, **columns)
    answer = carol.post(f"{path_of(delivery)}/resend", {})
    assert (answer.status_code, answer.json()["code"]) == (409, "conflict")
    assert answer.json()["detail"] == (
        f"This delivery cannot be sent again: {reason} Only failed deliveries can be sent again."
    )
    delivery.refresh_from_db()
    assert (delivery.state, delivery.attempts) == (state, 1)
    assert not OrmQ.objects.exists()
    assert not Audit.objects.filter(action="resend").exists()


def test_delivery_is_resent_only_once(cast: Cast, carol: Caller) -> None:
    path = f"{path_of(failed_delivery(cast, cast.vision, cast.carol))}/resend"
    first, retried, second = (
        carol("POST", path, {}, headers={"Idempotency-Key": key}) for key in ("one", "one", "two")
    )
    assert [answer.status_code for answer in (first, retried, second)] == [200, 200, 409]
    assert OrmQ.objects.count() == 1


def test_delivery_cannot_be_accessed_through_another_subscription(cast: Cast, alice: Caller) -> None:
    delivery = failed_delivery(cast, cast.vision, cast.carol)
    other = subscribe(actor=cast.alice, scope=None, to="ops@example.org", events=["pool"])
    for path in (f"subscriptions/{other.pk}/deliveries/{delivery.pk}", f"{path_of(delivery)}0"):
        for answer in (alice.get(path), alice.post(f"{path}/resend", {})):
            assert answer.status_code == 404
            assert "has no delivery with the ID" in answer.json()["detail"]


def test_former_member_cannot_resend_a_project_delivery(cast: Cast, dave: Caller) -> None:
    delivery = failed_delivery(cast, cast.dave.user, cast.dave, project_id=cast.vision.pk)
    Membership.objects.filter(user=cast.dave.user).delete()
    answer = dave.post(f"{path_of(delivery)}/resend", {})
    assert answer.status_code == 403
    assert "a project that you can no longer see" in answer.json()["detail"]
    assert Delivery.objects.get().state == "failed"


def test_edit_changes_only_the_given_values_and_is_audited(cast: Cast, carol: Caller) -> None:
    row = subscribe(actor=cast.carol, scope=cast.vision, to="team@example.org", events=["failed"])
    path = f"subscriptions/{row.pk}"
    answer = carol("PATCH", path, {"events": ["pending", "failed"], "pending_minutes": 5})
    assert answer.status_code == 200
    assert (answer.json()["to"], answer.json()["project"]) == ("team@example.org", "vision")
    assert (answer.json()["events"], answer.json()["pending_minutes"]) == (["failed", "pending"], 5)
    assert answer.json() == carol.get(path).json()
    (entry,) = Audit.objects.filter(action="edit")
    assert entry.before == {"events": ["failed"], "pending_minutes": 60}
    assert entry.after == {"events": ["failed", "pending"], "pending_minutes": 5}
    assert carol("PATCH", path, {}).status_code == 200, "without changes"
    assert Audit.objects.filter(action="edit").count() == 1
    hook = "https://hooks.slack.com/services/T000/B000/secretsecret"
    answer = carol("PATCH", path, {"to": hook})
    assert (answer.json()["channel"], answer.json()["to"]) == ("chat", "https://hooks.slack.com/…cret")


def test_edit_with_invalid_values_or_an_address_in_use_is_rejected(cast: Cast, carol: Caller) -> None:
    subscribe(actor=cast.carol, scope=cast.vision, to="used@example.org", events=["failed"])
    row = subscribe(actor=cast.carol, scope=cast.vision, to="team@example.org", events=["failed"])
    path = f"subscriptions/{row.pk}"
    assert carol("PATCH", path, {"to": "used@example.org"}).status_code == 409
    invalid: list[dict[str, Any]] = [
        {"events": ["pool"]}, {"events": []}, {"pending_minutes": 0}, {"to": "nowhere"}, {"project": "ads"},
    ]  # fmt: skip
    for body in invalid:
        assert carol("PATCH", path, body).status_code == 422, body
    row.refresh_from_db()
    assert (row.to, row.events) == ("team@example.org", ["failed"])
