"""Tests for the notification page."""

import re

import pytest

from projects.models import Audit, Delivery, Subscription
from projects.services.notifications import deliveries
from projects.services.notifications.subscriptions import subscribe
from tests import factories as make
from tests.cast import Cast
from tests.web.conftest import SignIn

HTMX = {"HX-Request": "true"}
SUBSCRIPTION_FORM = {
    "scope": "mine", "events": ["failed"], "channel": "mail", "pending_minutes": "60",
    "to": "d@example.org",
}  # fmt: skip


def test_subscription_is_created_and_deleted_only_by_its_owner(cast: Cast, sign_in: SignIn) -> None:
    dave = sign_in("dave")
    assert "dave@example.org" in dave.get("/notifications/new", headers=HTMX).content.decode()
    assert dave.post("/notifications/new", SUBSCRIPTION_FORM, headers=HTMX).status_code == 204
    row = Subscription.objects.get()
    assert (row.user, row.events) == (cast.dave.user, ["failed"])
    assert "d@example.org" in dave.get("/notifications").content.decode()
    assert "d@example.org" not in sign_in("carol").get("/notifications").content.decode()
    assert sign_in("carol").post(f"/notifications/{row.pk}/delete").status_code == 404
    assert dave.post(f"/notifications/{row.pk}/delete", headers=HTMX).status_code == 204
    assert not Subscription.objects.exists()


def test_form_suggests_the_users_email_address_only_until_it_is_subscribed(
    cast: Cast, sign_in: SignIn
) -> None:
    subscribe(actor=cast.dave, scope=cast.dave.user, to="dave@example.org", events=["failed"])
    assert "dave@example.org" not in sign_in("dave").get("/notifications/new", headers=HTMX).content.decode()


@pytest.mark.heavy
def test_standalone_form_has_a_main_heading(cast: Cast, sign_in: SignIn) -> None:
    dave = sign_in("dave")
    assert "<h1>Create subscription</h1>" in dave.get("/notifications/new").content.decode()
    assert "<h2>Create subscription</h2>" in dave.get("/notifications/new", headers=HTMX).content.decode()


def test_subscription_form_offers_only_scopes_that_the_user_administers(sign_in: SignIn) -> None:
    assert "Project vision" not in sign_in("dave").get("/notifications/new").content.decode()
    assert "Project vision" in sign_in("carol").get("/notifications/new").content.decode()
    assert "The entire platform" in sign_in("alice").get("/notifications/new").content.decode()


def test_invalid_address_is_rejected_with_an_error(sign_in: SignIn) -> None:
    answer = sign_in("dave").post("/notifications/new", SUBSCRIPTION_FORM | {"to": "nowhere"}, headers=HTMX)
    assert answer.status_code == 422
    assert "Enter an email address, for example ada@example.com." in answer.content.decode()


def test_subscription_form_shows_all_errors_at_once_in_plain_english(sign_in: SignIn) -> None:
    wrong = {"scope": "mine", "channel": "webhook", "to": "ftp://x", "pending_minutes": "0"}
    errors = sign_in("dave").post("/notifications/new", wrong, headers=HTMX).context["form"].errors
    assert errors["events"] == ["Choose a value."]
    assert errors["to"] == ["Enter a URL, for example https://example.com/hook."]
    assert set(errors) == {"events", "to", "pending_minutes"}


@pytest.mark.parametrize(
    ("channel", "to", "stored"),
    [
        ("chat", "https://chat.example.com/hook", "slack:https://chat.example.com/hook"),
        ("chat", "https://hooks.slack.com/services/T0", "https://hooks.slack.com/services/T0"),
        ("webhook", "https://example.com/hook", "https://example.com/hook"),
        ("webhook", "d@example.org", None),
        ("mail", "https://example.com/hook", None),
    ],
)
def test_address_must_fit_the_chosen_channel(
    sign_in: SignIn, channel: str, to: str, stored: str | None
) -> None:
    sign_in("dave").post(
        "/notifications/new", SUBSCRIPTION_FORM | {"channel": channel, "to": to}, headers=HTMX
    )
    assert Subscription.objects.values_list("to", flat=True).first() == stored


def test_server_variable_is_shown_only_to_platform_admins(sign_in: SignIn) -> None:
    private = SUBSCRIPTION_FORM | {"channel": "webhook", "to": "https://10.0.0.1/hook"}
    for name, sees in (("dave", False), ("alice", True)):
        page = sign_in(name).post("/notifications/new", private, headers=HTMX).content.decode()
        assert "10.0.0.1 is not a public address" in page
        assert ("BERTH_NOTIFY_NETWORKS" in page) is sees


def test_events_and_threshold_are_shown_only_where_they_apply(cast: Cast, sign_in: SignIn) -> None:
    alice = sign_in("alice")
    page = alice.get("/notifications/new", headers=HTMX).content.decode()
    boxes = dict(re.findall(r'value="(\w+)"[^>]*data-shown-for="scope=([^"]*)"', page))
    assert boxes["pool"] == "platform"
    assert boxes["budget"] == boxes["schedule"]
    assert "mine" not in boxes["budget"].split("|") and "projects/vision" in boxes["budget"].split("|")
    assert 'data-shown-for="events=pending"' in page
    without = {name: value for name, value in SUBSCRIPTION_FORM.items() if name != "pending_minutes"}
    assert alice.post("/notifications/new", without, headers=HTMX).status_code == 204
    empty = without | {"events": ["pending"], "to": "other@example.org"}
    errors = alice.post("/notifications/new", empty, headers=HTMX).context["form"].errors
    assert errors == {"pending_minutes": ["Enter a number of minutes."]}


def test_webhook_url_is_shown_without_its_secret(cast: Cast, sign_in: SignIn) -> None:
    hook = "https://hooks.slack.com/services/T000/B000/secretsecret"
    subscribe(actor=cast.carol, scope=cast.vision, to=hook, events=["failed"])
    page = sign_in("carol").get("/notifications").content.decode()
    assert "hooks.slack.com/…cret" in page and "secretsecret" not in page


def test_test_message_is_queued_at_most_once_a_minute(cast: Cast, sign_in: SignIn) -> None:
    row = subscribe(actor=cast.carol, scope=cast.vision, to="team@example.org", events=["failed"])
    path = f"/notifications/{row.pk}/test"
    assert sign_in("dave").post(path).status_code == 404
    carol = sign_in("carol")
    assert "Send a test message to team@example.org?" in carol.get(path).content.decode()
    answer = carol.post(path, headers=HTMX)
    assert (answer.status_code, "queued" in answer.headers["HX-Trigger"]) == (204, True)
    delivery = Delivery.objects.get()
    assert (delivery.kind, delivery.to, delivery.content["scope"]) == ("test", "team@example.org", "vision")
    again = carol.post(path, headers=HTMX).content.decode()
    assert "A test message was sent within the last minute." in again
    assert Delivery.objects.count() == 1
    assert "Test message" in carol.get("/notifications").content.decode()


@pytest.mark.heavy
def test_subscription_list_shows_scope_events_and_channel(cast: Cast, sign_in: SignIn) -> None:
    hook = "slack:https://hooks.slack.com/services/T000/B000/secretsecret"
    subscribe(actor=cast.carol, scope=cast.vision, to=hook, events=["failed", "pending"], pending_minutes=240)
    carol = sign_in("carol")
    for path in ("/notifications", "/notifications?search=slack"):
        text = carol.get(path).content.decode()
        row = text.split("<tbody>")[1].split("</tbody>")[0]
        for fragment in ("vision", ">Failed<", ">Pending for 4 h<", ">Slack<", "hooks.slack.com"):
            assert fragment in row, (path, fragment)
    assert "No matches" in carol.get("/notifications?search=email").content.decode()


def test_failed_delivery_can_be_resent_by_users_who_may_change_the_subscription(
    cast: Cast, sign_in: SignIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = subscribe(actor=cast.carol, scope=cast.vision, to="team@example.org", events=["failed"])
    content = {"event": "failed", "project": "vision", "workload": "train", "message": "exit code 1"}
    delivery = Delivery.objects.create(
        kind="failed", subscription_id=row.pk, to=row.to, channel=row.channel, content=content,
        state="failed", attempts=8, next_attempt_at=make.ago(hours=1), ended_at=make.ago(hours=1),
        last_error="HTTP status 503",
    )  # fmt: skip
    path = f"/notifications/deliveries/{delivery.pk}/resend"
    assert sign_in("dave").post(path).status_code == 404
    carol = sign_in("carol")
    listed = carol.get("/notifications").content.decode()
    assert path in listed
    cell = listed.partition('data-label="Last delivery"')[2].partition("</td>")[0]
    assert "Failed" in cell and "HTTP status 503" in cell
    assert "Send this notification to team@example.org again?" in carol.get(path).content.decode()
    answer = carol.post(path, headers=HTMX)
    assert (answer.status_code, "queued again" in answer.headers["HX-Trigger"]) == (204, True)
    delivery.refresh_from_db()
    assert (delivery.state, delivery.attempts, delivery.ended_at) == ("pending", 0, None)
    assert "Only failed deliveries can be sent again." in carol.post(path, headers=HTMX).content.decode()
    assert path not in carol.get("/notifications").content.decode()
    assert list(Audit.objects.filter(action="resend").values_list("actor", flat=True)) == ["carol"]
    assert "sent a delivery again for notification" in carol.get("/activity").content.decode()

    monkeypatch.setattr(deliveries, "send", lambda row, now: None)
    assert deliveries.deliver(delivery.pk, make.ago(minutes=-1))
    delivery.refresh_from_db()
    assert (delivery.state, delivery.attempts) == ("delivered", 1)


@pytest.mark.heavy
def test_delivery_of_a_deleted_subscription_is_not_resent(cast: Cast, sign_in: SignIn) -> None:
    delivery = Delivery.objects.create(
        kind="failed", to="team@example.org", channel="mail", content={}, state="failed",
        next_attempt_at=make.ago(hours=1), ended_at=make.ago(hours=1),
    )  # fmt: skip
    for pk in (delivery.pk, delivery.pk + 1):
        assert sign_in("alice").post(f"/notifications/deliveries/{pk}/resend").status_code == 404


@pytest.mark.heavy
def test_subscription_is_edited_in_a_form_that_hides_a_stored_webhook_address(
    cast: Cast, sign_in: SignIn
) -> None:
    hook = "https://hooks.slack.com/services/T000/B000/secretsecret"
    row = subscribe(actor=cast.carol, scope=cast.vision, to=hook, events=["failed"])
    carol, path = sign_in("carol"), f"/notifications/{row.pk}/edit"
    assert f'href="{path}"' in carol.get("/notifications").content.decode()
    form = carol.get(path, headers=HTMX).content.decode()
    assert "secretsecret" not in form and "Leave empty to keep https://hooks.slack.com/…cret" in form
    assert "Node pool failing" not in form, "not an event of a project"
    values = {"events": ["failed", "budget"], "channel": "chat", "pending_minutes": "15", "to": ""}
    assert carol.post(path, values, headers=HTMX).status_code == 204
    row.refresh_from_db()
    assert (row.to, row.events, row.pending_minutes) == (hook, ["failed", "budget"], 15)
    values["channel"] = "mail"
    assert carol.post(path, values, headers=HTMX).status_code == 422, "the channel has no address yet"
    assert carol.post(path, values | {"to": "new@example.org"}, headers=HTMX).status_code == 204
    assert 'value="new@example.org"' in carol.get(path).content.decode()
    assert carol.post(path, values, headers=HTMX).status_code == 422, "an email address is required"
    for name in ("dave", "erin", "grace", "frank"):
        assert sign_in(name).get(path).status_code == 404
        assert sign_in(name).post(path, values | {"to": "x@example.org"}).status_code == 404
    row.refresh_from_db()
    assert row.to == "new@example.org"
