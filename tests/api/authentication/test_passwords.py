"""Tests for password changes over REST."""

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from projects.models import ApiToken, Audit, PortLink
from projects.services.people import tokens
from tests.api.conftest import Caller
from tests.cast import Cast
from tests.port_proxy.conftest import running

OLD, NEW = "correct horse battery", "a better horse battery"


def sign_in(name: str = "dave", password: str = OLD) -> Caller:
    answer = Caller().post("login", {"username": name, "password": password})
    assert answer.status_code == 200, answer.content
    return Caller(answer.json()["token"])


def change(caller: Caller, current: str = OLD, new: str = NEW, **more: Any) -> Any:
    return caller.post("password", {"current_password": current, "new_password": new, **more})


def test_only_the_new_password_is_accepted_after_a_change(cast: Cast) -> None:
    assert change(sign_in()).status_code == 200
    assert Caller().post("login", {"username": "dave", "password": OLD}).status_code == 401
    assert sign_in(password=NEW).get("whoami").status_code == 200


def test_password_change_revokes_sign_in_tokens_and_replaces_the_current_token(
    cast: Cast, dave: Caller
) -> None:
    here, elsewhere = sign_in(), sign_in()
    answer = change(here).json()
    assert answer["revoked_tokens"] == 2
    assert (here.get("whoami").status_code, elsewhere.get("whoami").status_code) == (401, 401)
    replacement = Caller(answer["token"]).get("whoami").json()
    assert (replacement["username"], replacement["scopes"]) == ("dave", ["read", "write", "admin"])
    assert dave.get("whoami").status_code == 200, "a manually issued token stays valid"


def test_password_change_revokes_other_tokens_on_request(cast: Cast, dave: Caller) -> None:
    answer = change(sign_in(), revoke_tokens=True).json()
    assert answer["revoked_tokens"] == 2
    assert dave.get("whoami").status_code == 401
    assert Caller(answer["token"]).get("whoami").status_code == 200


def test_manually_issued_token_is_not_replaced(cast: Cast, dave: Caller) -> None:
    assert change(dave).json() == {"revoked_tokens": 0, "token": None, "expires_at": None}
    assert dave.get("whoami").status_code == 200


@pytest.mark.heavy
def test_replacement_token_keeps_the_original_expiry(cast: Cast) -> None:
    here = sign_in()
    end = timezone.now().replace(microsecond=0) + timedelta(hours=1)
    ApiToken.objects.filter(user=cast.dave.user).update(expires_at=end)
    answer = change(here).json()
    assert ApiToken.objects.get(revoked_at=None, user=cast.dave.user).expires_at == end, answer


def test_password_change_deletes_port_links(cast: Cast) -> None:
    workload, _ = running(cast)
    PortLink.objects.create(
        digest="d", workload=workload, port="lab", user=cast.dave.user, session_hash="h",
        expires_at=timezone.now(), session_until=timezone.now(),
    )  # fmt: skip
    change(sign_in())
    assert not PortLink.objects.exists()


def test_password_change_is_audited_without_the_passwords(cast: Cast) -> None:
    change(sign_in())
    row = Audit.objects.get(action="set_password")
    assert (row.actor, row.object_name, row.after) == ("dave", "dave", {"revoked_tokens": 1})
    assert not [text for text in map(str, Audit.objects.values()) if OLD in text or NEW in text]
    assert Audit.objects.filter(action="revoke", object_type="apitoken").count() == 1


@pytest.mark.parametrize(("current", "new", "path", "message"), [
    ("wrong", NEW, "current_password", "does not match"),
    (OLD, OLD, "new_password", "must differ"),
    (OLD, "short", "new_password", "too short"),
    (OLD, "password123456", "new_password", "too common"),
    (OLD, "dave-dave-dave", "new_password", "too similar"),
])  # fmt: skip
def test_error_names_the_invalid_password_field(
    cast: Cast, dave: Caller, current: str, new: str, path: str, message: str
) -> None:
    cast.dave.user.email = "dave-dave-dave@example.org"
    cast.dave.user.save()
    answer = change(dave, current, new)
    assert answer.status_code == 422
    assert message in {error["path"]: error["message"] for error in answer.json()["errors"]}[path]
    assert sign_in()


def test_wrong_current_passwords_are_throttled(cast: Cast, dave: Caller, settings: Any) -> None:
    settings.BERTH_RATE_LIMITS = {**settings.BERTH_RATE_LIMITS, "login": 3}
    answers = [change(dave, f"guess {n}") for n in range(5)]
    assert [answer.status_code for answer in answers] == [422, 422, 422, 429, 429]
    assert int(answers[-1].headers["Retry-After"]) > 0
    assert change(dave).status_code == 429, "even the correct password is rejected from this address"


@pytest.mark.heavy
def test_invalid_new_password_does_not_count_as_a_guess(cast: Cast, dave: Caller, settings: Any) -> None:
    settings.BERTH_RATE_LIMITS = {**settings.BERTH_RATE_LIMITS, "login": 3}
    assert {change(dave, new="short").status_code for _ in range(8)} == {422}
    assert change(dave).status_code == 200


@pytest.mark.heavy
def test_user_without_a_password_is_directed_to_single_sign_on(cast: Cast, dave: Caller) -> None:
    user = User.objects.get(username="dave")
    user.set_unusable_password()
    user.save()
    answer = change(dave)
    assert answer.status_code == 409
    assert "single sign-on" in answer.json()["detail"]


def test_read_only_token_cannot_change_the_password(caller: Any) -> None:
    assert change(caller("dave", "read")).status_code == 403


def test_password_change_ends_other_browser_sessions(cast: Cast) -> None:
    here, elsewhere = Client(), Client()
    for browser in (here, elsewhere):
        browser.force_login(User.objects.get(username="dave"))
    body = {"current_password": OLD, "new_password": NEW}
    assert here.post("/api/v1/password", body, content_type="application/json").status_code == 200
    assert here.get("/api/v1/whoami").status_code == 200
    assert elsewhere.get("/api/v1/whoami").status_code == 401


def test_password_set_by_an_admin_revokes_sign_in_tokens(cast: Cast) -> None:
    here = sign_in()
    admin = User.objects.get(username="alice")
    admin.is_staff = admin.is_superuser = True
    admin.save()
    browser = Client()
    browser.force_login(admin)
    path = f"/admin/auth/user/{cast.dave.user.pk}/password/"
    form = {"password1": NEW, "password2": NEW, "usable_password": "true"}
    assert browser.post(path, form).status_code == 302
    assert here.get("whoami").status_code == 401
    assert ApiToken.objects.get(user=cast.dave.user).revoked_at is not None
    assert Audit.objects.get(action="set_password").actor == "alice"


@pytest.mark.heavy
def test_password_set_by_a_management_command_revokes_sign_in_tokens(cast: Cast, dave: Caller) -> None:
    here = sign_in()
    user = User.objects.get(username="dave")
    user.set_password(NEW)
    user.save()
    assert here.get("whoami").status_code == 401
    assert dave.get("whoami").status_code == 200


@pytest.mark.heavy
def test_token_list_marks_tokens_created_by_sign_in(cast: Cast, dave: Caller) -> None:
    sign_in()
    named = {token["name"]: token["interactive"] for token in dave.get("tokens").json()["items"]}
    assert named.pop("test admin read write") is False
    assert list(named.values()) == [True]


@pytest.mark.heavy
def test_token_named_like_a_sign_in_token_is_not_marked_as_a_sign_in_token(cast: Cast) -> None:
    token, secret = tokens.issue(
        actor=cast.dave, name="login 2026-01-01 00:00:00 0123abcd", scopes=["write"], expires_at=None
    )
    assert not token.interactive
    assert change(Caller(secret)).status_code == 200
    assert Caller(secret).get("tokens").status_code == 403, (
        "the token is still valid but lacks the scope read"
    )
