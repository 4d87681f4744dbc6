"""Tests for sign-in with OpenID Connect, including forged responses."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from django.contrib.auth.models import User
from django.core.cache import cache
from django.db import IntegrityError
from django.test import Client
from joserfc.jwk import RSAKey

from berth.server.web.authentication import single_sign_on
from projects.models import Audit, Identity
from tests.web.people.oidc_provider import CLIENT, SECRET, Provider, running_provider


@pytest.fixture
def provider(settings: Any, db: None) -> Iterator[Provider]:
    cache.clear()
    with running_provider() as server:
        settings.BERTH_OIDC_ISSUER = server.issuer
        settings.BERTH_OIDC_CLIENT_ID, settings.BERTH_OIDC_CLIENT_SECRET = CLIENT, SECRET
        yield server
    single_sign_on._register.cache_clear()


def callback_url(client: Client, path: str = "/login/sso") -> str:
    """Return the URL to which the provider redirects the browser after sign-in."""
    redirect = client.get(path)
    assert redirect.status_code == 302, redirect.content
    return httpx.get(redirect.headers["Location"], follow_redirects=False).headers["Location"]


def sign_in(client: Client) -> Any:
    return client.get(callback_url(client))


def user_name(client: Client) -> str | None:
    key = client.session.get("_auth_user_id")
    return User.objects.get(pk=key).username if key else None


def test_first_sign_in_creates_a_user_without_a_role(provider: Provider) -> None:
    client = Client()
    assert sign_in(client).headers["Location"] == "/"
    user = User.objects.get()
    assert (user_name(client), user.email, user.has_usable_password()) == ("hedy", "hedy@example.org", False)
    assert not user.memberships.exists()
    assert set(Audit.objects.values_list("actor", "action")) == {
        ("single sign-on", "create"), ("single sign-on", "identify"),
    }  # fmt: skip


def test_sign_in_returns_only_to_a_requested_page_of_this_site(provider: Provider) -> None:
    client = Client()
    assert client.get(callback_url(client, "/login/sso?next=/quotas")).headers["Location"] == "/quotas"
    evil = Client()
    assert evil.get(callback_url(evil, "/login/sso?next=https://evil.example")).headers["Location"] == "/"


def test_returning_user_is_identified_by_subject_not_by_name(provider: Provider) -> None:
    sign_in(Client())
    provider.person |= {"preferred_username": "hedy.lamarr"}
    again = Client()
    sign_in(again)
    assert (user_name(again), User.objects.count()) == ("hedy", 1)


def account_without_password(name: str, mail: str = "") -> User:
    """Create an account without a password, as an admin would."""
    user = User(username=name, email=mail)
    user.set_unusable_password()
    user.save()
    return user


@pytest.mark.parametrize(("name", "mail"), [("hedy", "hedy@example.org"), ("h.lamarr", "Hedy@Example.org")])
def test_account_created_by_admin_is_linked_by_verified_email(
    provider: Provider, name: str, mail: str
) -> None:
    user = account_without_password(name, mail)
    client = Client()
    sign_in(client)
    assert (user_name(client), Identity.objects.get().user, User.objects.count()) == (name, user, 1)


@pytest.mark.parametrize("mail", ["", "other@example.org"])
def test_username_alone_does_not_link_an_account(provider: Provider, mail: str) -> None:
    account_without_password("hedy", mail)
    client = Client()
    answer = sign_in(client)
    assert (answer.status_code, user_name(client), Identity.objects.count()) == (403, None, 0)
    assert "Ask a platform admin to check the account&#x27;s email address" in answer.content.decode()


@pytest.mark.parametrize("claims", [{"email_verified": False}, {"email_verified": None},
                                    {"email_verified": "true"}, {"email": None}])  # fmt: skip
def test_unverified_email_does_not_link_an_account(provider: Provider, claims: dict[str, Any]) -> None:
    account_without_password("hedy", "hedy@example.org")
    provider.person |= claims
    client = Client()
    assert (sign_in(client).status_code, user_name(client), Identity.objects.count()) == (403, None, 0)


def test_email_shared_by_two_accounts_links_neither_account(provider: Provider) -> None:
    account_without_password("one", "hedy@example.org")
    account_without_password("two", "hedy@example.org")
    answer = sign_in(Client())
    assert (answer.status_code, Identity.objects.count()) == (403, 0)
    assert "More than one account has the email address" in answer.content.decode()


def test_email_with_a_look_alike_letter_does_not_match(provider: Provider) -> None:
    account_without_password("mike", "mike@example.org")
    provider.person |= {"preferred_username": "other", "email": "m\u0131ke@example.org"}
    client = Client()
    sign_in(client)
    assert user_name(client) == "other"


@pytest.mark.parametrize("name", ["hedy", "Hedy"])
def test_account_with_a_password_is_not_linked(provider: Provider, name: str) -> None:
    User.objects.create_user(name, "hedy@example.org", password="correct horse battery")
    client = Client()
    answer = sign_in(client)
    assert (answer.status_code, user_name(client), Identity.objects.count()) == (403, None, 0)
    assert "already exists" in answer.content.decode()


def test_second_subject_with_the_same_name_is_rejected(provider: Provider) -> None:
    sign_in(Client())
    provider.person |= {"sub": "00u2"}
    client = Client()
    assert (sign_in(client).status_code, user_name(client)) == (403, None)


@pytest.mark.parametrize("name", [None, "", "two words", "x" * 151, "<script>"])
def test_invalid_username_is_rejected(provider: Provider, name: str | None) -> None:
    provider.person["preferred_username"] = name
    assert sign_in(Client()).status_code == 403
    assert not User.objects.exists()


def test_unknown_user_is_rejected_if_account_creation_is_off(provider: Provider, settings: Any) -> None:
    settings.BERTH_OIDC_CREATE = False
    answer = sign_in(Client())
    assert (answer.status_code, User.objects.count()) == (403, 0)


def test_inactive_account_is_rejected(provider: Provider) -> None:
    sign_in(Client())
    User.objects.update(is_active=False)
    client = Client()
    assert (sign_in(client).status_code, user_name(client)) == (403, None)


@pytest.mark.every_case
@pytest.mark.parametrize(
    "forged_claims",
    [
        {"aud": "another client"},
        {"iss": "https://another.example"},
        {"exp": 1},
        {"nonce": "of another sign-in"},
        {"sub": None},
    ],
    ids=str,
)
def test_id_token_with_forged_claims_is_rejected(provider: Provider, forged_claims: dict[str, Any]) -> None:
    provider.forged_claims = forged_claims
    client = Client()
    answer = sign_in(client)
    assert (answer.status_code, user_name(client), User.objects.count()) == (403, None, 0)


def test_id_token_signed_with_another_key_is_rejected(provider: Provider) -> None:
    provider.key = RSAKey.generate_key(2048, {"kid": "one"}, auto_kid=False)
    client = Client()
    assert (sign_in(client).status_code, user_name(client)) == (403, None)


def test_callback_of_another_sign_in_is_rejected(provider: Provider) -> None:
    stolen = callback_url(Client())
    client = Client()
    assert (client.get(stolen).status_code, user_name(client)) == (403, None)
    assert client.get("/login/sso/return?code=x&state=y").status_code == 403
    assert client.get("/login/sso/return").status_code == 403


def test_error_from_the_identity_provider_is_escaped(provider: Provider) -> None:
    provider.error = "You are <b>not</b> in the group."
    answer = sign_in(Client())
    assert answer.status_code == 403
    assert "You are &lt;b&gt;not&lt;/b&gt; in the group." in answer.content.decode()


def test_password_sign_in_works_while_the_identity_provider_is_unreachable(provider: Provider) -> None:
    provider.shutdown()
    provider.server_close()
    client = Client()
    assert client.get("/login/sso").status_code == 502
    User.objects.create_user("ada", password="correct horse battery")
    assert client.post("/login", {"username": "ada", "password": "correct horse battery"}).status_code == 302


def test_login_page_offers_single_sign_on_only_if_configured(provider: Provider, settings: Any) -> None:
    settings.BERTH_OIDC_NAME = "Example Corp"
    page = Client().get("/login?next=/quotas").content.decode()
    assert 'href="/login/sso?next=/quotas"' in page and "Sign in with Example Corp" in page
    settings.BERTH_OIDC_ISSUER = ""
    assert "/login/sso" not in Client().get("/login").content.decode()
    assert Client().get("/login/sso").status_code == 404


def test_username_created_concurrently_is_rejected(
    provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    def raise_integrity_error(user: User) -> None:
        raise IntegrityError("duplicate key value violates unique constraint")

    monkeypatch.setattr(User, "save", raise_integrity_error)
    answer = sign_in(Client())
    assert answer.status_code == 403
    assert "An account with the username hedy already exists" in answer.content.decode()
    assert not Identity.objects.exists()
