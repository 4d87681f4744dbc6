"""Tests for the pages of all users' API tokens and of one user."""

from datetime import timedelta

import pytest
from django.utils import timezone

from projects.models import ApiToken, Audit
from projects.services.people import tokens
from tests.cast import Cast
from tests.web.conftest import SignIn, streamed

HTMX = {"HX-Request": "true"}


@pytest.fixture
def ci_token(cast: Cast) -> ApiToken:
    expiry = timezone.now() + timedelta(days=7)
    tokens.issue(actor=cast.grace, name="notebook", scopes=["read"], expires_at=None)
    return tokens.issue(actor=cast.dave, name="ci", scopes=["read", "write"], expires_at=expiry)[0]


def test_platform_admin_lists_and_revokes_the_tokens_of_all_users(
    cast: Cast, sign_in: SignIn, ci_token: ApiToken
) -> None:
    admin = sign_in("alice")
    assert 'href="/access/tokens"' in admin.get("/access").content.decode()
    text = admin.get("/access/tokens").content.decode()
    for part in ("dave", "grace", "notebook", f"{ci_token.prefix}…", ">write<", ">never<"):
        assert part in text, part
    assert "grace" not in admin.get("/access/tokens?search=dave+ci", headers=HTMX).content.decode()
    assert ci_token.prefix not in admin.get("/access/tokens?search=notebook", headers=HTMX).content.decode()
    file = streamed(admin.get("/access/tokens?format=csv")).decode()
    assert file.splitlines()[0].startswith("User,Name,Prefix,Scopes") and ci_token.digest not in file

    question = admin.get(f"/access/tokens/{ci_token.pk}/revoke").content.decode()
    assert "Revoke token ci of dave?" in question
    answer = admin.post(f"/access/tokens/{ci_token.pk}/revoke", follow=True)
    assert answer.redirect_chain == [("/access/tokens", 302)]
    assert "Token ci of dave revoked." in answer.content.decode()
    ci_token.refresh_from_db()
    assert ci_token.revoked_at is not None
    entry = Audit.objects.get(action="revoke")
    assert (entry.actor, entry.before) == ("alice", {"name": "ci", "for": "dave"})


def test_tokens_tab_has_no_button_to_add_a_user(cast: Cast, sign_in: SignIn, ci_token: ApiToken) -> None:
    alice = sign_in("alice")
    assert "Add user" in alice.get("/access").content.decode()
    assert "Add user" not in alice.get("/access/tokens").content.decode()


def test_expired_and_revoked_tokens_are_not_listed(cast: Cast, sign_in: SignIn, ci_token: ApiToken) -> None:
    ApiToken.objects.filter(pk=ci_token.pk).update(expires_at=timezone.now() - timedelta(minutes=1))
    ApiToken.objects.filter(name="notebook").update(revoked_at=timezone.now())
    text = sign_in("alice").get("/access/tokens").content.decode()
    assert ci_token.prefix not in text and "notebook" not in text


@pytest.mark.parametrize("name", ["bob", "carol", "dave", "erin", "frank"])
def test_only_platform_admins_see_users_and_other_users_tokens(
    cast: Cast, sign_in: SignIn, ci_token: ApiToken, name: str
) -> None:
    client = sign_in(name)
    user = f"/access/users/{cast.grace.user.pk}"
    assert client.get("/access/tokens").status_code == 403
    assert client.get("/access/tokens?format=csv").status_code == 403
    assert client.get(user).status_code == 403
    listed = client.get("/access").content.decode()
    assert "/access/tokens" not in listed and "/access/users/" not in listed
    of_grace = ApiToken.objects.get(name="notebook")
    assert client.post(f"/access/tokens/{of_grace.pk}/revoke").status_code == 404
    of_grace.refresh_from_db()
    assert of_grace.revoked_at is None


def test_user_page_shows_roles_tokens_and_the_last_sign_in(
    cast: Cast, sign_in: SignIn, ci_token: ApiToken
) -> None:
    admin, at = sign_in("alice"), f"/access/users/{cast.dave.user.pk}"
    assert f'href="{at}"' in admin.get("/access").content.decode()
    assert "never signed in" in admin.get(f"/access/users/{cast.grace.user.pk}").content.decode()
    cast.dave.user.last_login = timezone.now()
    cast.dave.user.save()
    text = admin.get(at).content.decode()
    for part in (
        "last sign-in <time",
        "Member</span> vision",
        ci_token.prefix,
        "Revoke ci of dave",
        "Deactivate user",
    ):
        assert part in text, part
    assert "notebook" not in text, "the token of another user"
    own = admin.get(f"/access/users/{cast.alice.user.pk}").content.decode()
    assert "Deactivate user" not in own, "an admin cannot deactivate their own account"
