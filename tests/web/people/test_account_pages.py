"""Tests for the account page and its password form."""

import re

import pytest
from django.contrib.auth.models import User
from django.test import Client
from pytest_django import Settings

from berth.core.errors import Forbidden
from projects.access import Action, require
from projects.models import Audit
from projects.services.people import tokens
from tests.cast import Cast
from tests.web.conftest import SignIn

OLD, NEW = "correct horse battery", "a better horse battery"
FORM = {"current_password": OLD, "new_password": NEW, "repeated": NEW}
HTMX = {"HX-Request": "true"}


def test_navigation_links_to_the_account_page(cast: Cast, sign_in: SignIn) -> None:
    dave = sign_in("dave")
    assert 'href="/account"' in dave.get("/").content.decode()
    text = dave.get("/account").content.decode()
    assert "Member" in text and "vision" in text and 'href="/account/password"' in text


def test_role_is_shown_with_its_grant_date(cast: Cast, sign_in: SignIn) -> None:
    text = sign_in("dave").get("/account").content.decode()
    assert re.search(r'since <time datetime="[^"]+" data-style="moment"', text)


@pytest.mark.heavy
def test_account_page_shows_the_role_of_a_superuser(cast: Cast) -> None:
    User.objects.create_superuser("admin", password=OLD)
    browser = Client()
    browser.force_login(User.objects.get(username="admin"))
    text = browser.get("/account").content.decode()
    assert "Superuser" in text and "No roles yet" not in text


def test_password_change_keeps_this_browser_signed_in(cast: Cast, sign_in: SignIn) -> None:
    here, elsewhere = sign_in("dave"), sign_in("dave")
    answer = here.post("/account/password", FORM)
    assert (answer.status_code, answer.headers["Location"]) == (302, "/account")
    assert "Password changed." in here.get("/account").content.decode()
    assert elsewhere.get("/account").status_code == 302, "the other browser has to sign in"
    assert User.objects.get(username="dave").check_password(NEW)
    assert Audit.objects.get(action="set_password").actor == "dave"


def test_account_page_ends_other_browser_sessions(cast: Cast, sign_in: SignIn) -> None:
    here, elsewhere, carol = sign_in("dave"), sign_in("dave"), sign_in("carol")
    assert "signed in on 1 other browser." in here.get("/account").content.decode()
    assert "Sign out of all other browsers?" in here.get("/account/sessions/end").content.decode()
    assert elsewhere.get("/account").status_code == 200, "a question ends nothing"
    here.post("/account/sessions/end")
    assert "Other browser sessions ended: 1." in here.get("/account").content.decode()
    assert elsewhere.get("/account").status_code == 302, "the other browser has to sign in"
    assert carol.get("/account").status_code == 200, "sessions of other users stay"
    assert Audit.objects.get(action="end_sessions").actor == "dave"


def test_sign_in_page_shows_the_installation_name_and_its_contact(settings: Settings) -> None:
    text = Client().get("/login").content.decode()
    assert "testserver" in text and "ask a platform admin" in text
    settings.BERTH_NAME, settings.BERTH_CONTACT = "ML platform (staging)", "ml-platform@example.org"
    text = Client().get("/login").content.decode()
    assert "ML platform (staging)" in text and "ask ml-platform@example.org." in text


@pytest.mark.heavy
def test_password_dialog_redirects_so_that_live_updates_reconnect(cast: Cast, sign_in: SignIn) -> None:
    answer = sign_in("dave").post("/account/password", FORM, headers=HTMX)
    assert (answer.status_code, answer.headers["HX-Redirect"]) == (204, "/account")


def test_password_change_revokes_tokens_on_request(cast: Cast, sign_in: SignIn) -> None:
    token, _ = tokens.issue(actor=cast.dave, name="ci", scopes=["read"], expires_at=None)
    dave = sign_in("dave")
    dave.post("/account/password", FORM | {"revoke_tokens": "on"})
    token.refresh_from_db()
    assert token.revoked_at is not None
    assert "Tokens revoked: 1." in dave.get("/account").content.decode()


@pytest.mark.parametrize(("change", "message"), [
    ({"current_password": "wrong"}, "Does not match your current password"),
    ({"repeated": "something else entirely"}, "The new passwords do not match."),
    ({"new_password": "short", "repeated": "short"}, "too short"),
    ({"new_password": ""}, "Enter a value."),
])  # fmt: skip
def test_invalid_password_form_shows_errors_without_the_password(
    cast: Cast, sign_in: SignIn, change: dict[str, str], message: str
) -> None:
    answer = sign_in("dave").post("/account/password", FORM | change)
    assert answer.status_code == 422
    text = answer.content.decode()
    assert message in text
    assert OLD not in text and NEW not in text, "no password is written into a page"
    assert User.objects.get(username="dave").check_password(OLD)


def test_wrong_current_passwords_are_throttled(cast: Cast, sign_in: SignIn, settings: Settings) -> None:
    settings.BERTH_RATE_LIMITS = {**settings.BERTH_RATE_LIMITS, "login": 3}
    dave = sign_in("dave")
    answers = [dave.post("/account/password", FORM | {"current_password": str(n)}) for n in range(4)]
    assert [answer.status_code for answer in answers] == [422, 422, 422, 429]
    assert "Too many attempts. Try again in" in answers[-1].content.decode()


def test_single_sign_on_users_see_no_password_form(cast: Cast, sign_in: SignIn) -> None:
    user = User.objects.get(username="dave")
    user.set_unusable_password()
    user.save()
    dave = Client()
    dave.force_login(user)
    text = dave.get("/account").content.decode()
    assert "single sign-on" in text and "/account/password" not in text
    assert "no password" in dave.post("/account/password", FORM).content.decode()


def test_anonymous_visitor_is_redirected_to_the_login_page(db: None) -> None:
    for path in ("/account", "/account/password"):
        assert Client().get(path).headers["Location"] == f"/login?next={path}"


@pytest.mark.heavy
def test_admin_site_password_page_redirects_to_the_account_page(cast: Cast, sign_in: SignIn) -> None:
    alice = sign_in("alice")
    guess = {"old_password": OLD, "new_password1": NEW, "new_password2": NEW}
    answer = alice.post("/admin/password_change/", guess)
    assert (answer.status_code, answer.headers["Location"]) == (302, "/account/password")
    assert User.objects.get(username="alice").check_password(OLD)


def test_admin_site_rejection_names_the_missing_role_and_the_users_who_can_grant_it(sign_in: SignIn) -> None:
    answer = sign_in("dave").get("/admin/", follow=True)
    text = answer.content.decode()
    assert answer.status_code == 403
    assert "The admin site is for platform admins." in text
    assert "You need the platform admin role. Ask alice to grant it." in text
    assert 'type="password"' not in text, "no second sign-in"
    assert '<a class="button" href="/">Go to the overview</a>' in text
    assert 'aria-label="Main"' in text, "the page has the navigation of the application"


def test_admin_site_rejects_a_platform_admin_who_is_not_staff(cast: Cast, sign_in: SignIn) -> None:
    answer = sign_in("alice").get("/admin/", follow=True)
    assert answer.status_code == 403
    assert "whose account is marked as staff, and yours is not" in answer.content.decode()
    User.objects.filter(username="alice").update(is_staff=True)
    assert sign_in("alice").get("/admin/", follow=True).status_code == 200


@pytest.mark.every_case
@pytest.mark.parametrize("path", ["/admin/", "/admin/scheduler/eviction/", "/admin/pools/node/"])
def test_admin_site_rejects_staff_without_a_role(cast: Cast, sign_in: SignIn, path: str) -> None:
    User.objects.filter(username="dave").update(is_staff=True)
    answer = sign_in("dave").get(path)
    text = answer.content.decode()
    assert answer.status_code == 403
    assert "The admin site is for platform admins. You need the platform admin role" in text
    assert 'aria-label="Main"' in text


@pytest.mark.heavy
def test_permission_errors_show_the_label_of_the_platform_role(cast: Cast) -> None:
    User.objects.create_user("root", is_superuser=True)
    User.objects.create_user("left", is_superuser=True, is_active=False)
    with pytest.raises(Forbidden) as rejected:
        require(cast.dave, Action.ADMINISTER)
    assert rejected.value.detail == (
        "Your role does not allow you to administer the platform. You need the platform admin role. Ask "
        "alice or root to grant it."
    )


@pytest.mark.heavy
def test_server_error_page_mentions_unsaved_changes_only_after_a_form_submission(
    sign_in: SignIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr("scheduler.web.submit.pages.open_draft", fail)
    monkeypatch.setattr("scheduler.web.submit.pages.read_draft", fail)
    dave = sign_in("dave")
    dave.raise_request_exception = False
    shown, sent = dave.get("/submit?kind=gang"), dave.post("/submit", {"step": "submit"})
    assert (shown.status_code, sent.status_code) == (500, 500)
    for answer in (shown, sent):
        text = answer.content.decode()
        assert 'class="brand" href="/"' in text and "Go to the overview" in text
        assert answer.headers["X-Request-ID"] in text and "broken" not in text
    assert 'href="/submit?kind=gang">Try again</a>' in shown.content.decode()
    assert "not saved" not in shown.content.decode()
    assert "Your changes were not saved." in sent.content.decode()


def test_password_field_is_described_by_the_sign_in_error(cast: Cast, settings: Settings) -> None:
    settings.BERTH_RATE_LIMITS = {**settings.BERTH_RATE_LIMITS, "login": 1}
    client, form = Client(), {"username": "dave", "password": "wrong"}
    for message in ("Wrong username or password.", "Too many attempts."):
        text = client.post("/login", form).content.decode()
        assert re.search(rf'id="sign-in-error" role="alert">{message}', text)
        (password,) = re.findall(r'<input[^>]*name="password"[^>]*>', text)
        (username,) = re.findall(r'<input[^>]*name="username"[^>]*>', text)
        assert 'aria-describedby="sign-in-error"' in password and 'aria-invalid="true"' in password
        assert "autofocus" in password and "autofocus" not in username
        assert 'value="dave"' in username and "wrong" not in password
