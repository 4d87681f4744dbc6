"""Sign-in through OpenID Connect, and forged answers."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from django.contrib.auth.models import User
from django.core.cache import cache
from django.db import IntegrityError
from django.test import Client
from joserfc.jwk import RSAKey

from berth.server.web import single_sign_on
from projects.models import Audit, Identity
from tests.web.oidc_provider import CLIENT, SECRET, Provider, providing


@pytest.fixture
def provider(settings: Any, db: None) -> Iterator[Provider]:
    cache.clear()
    with providing() as found:
        settings.BERTH_OIDC_ISSUER = found.issuer
        settings.BERTH_OIDC_CLIENT_ID, settings.BERTH_OIDC_CLIENT_SECRET = CLIENT, SECRET
        yield found
    single_sign_on._registered.cache_clear()


def sent_back(client: Client, begin: str = "/login/sso") -> str:
    """What a browser is sent back to by the provider."""
    off = client.get(begin)
    assert off.status_code == 302, off.content
    return httpx.get(off.headers["Location"], follow_redirects=False).headers["Location"]


def signed_in(client: Client) -> Any:
    return client.get(sent_back(client))


def who(client: Client) -> str | None:
    key = client.session.get("_auth_user_id")
    return User.objects.get(pk=key).username if key else None


def test_somebody_new_is_made_known_and_gets_no_role(provider: Provider) -> None:
    client = Client()
    assert signed_in(client).headers["Location"] == "/"
    user = User.objects.get()
    assert (who(client), user.email, user.has_usable_password()) == ("hedy", "hedy@example.org", False)
    assert not user.memberships.exists()
    assert set(Audit.objects.values_list("actor", "action")) == {
        ("single sign-on", "create"), ("single sign-on", "identify"),
    }  # fmt: skip


def test_one_comes_back_to_where_one_wanted_to_go_but_never_elsewhere(provider: Provider) -> None:
    client = Client()
    assert client.get(sent_back(client, "/login/sso?next=/quotas")).headers["Location"] == "/quotas"
    evil = Client()
    assert evil.get(sent_back(evil, "/login/sso?next=https://evil.example")).headers["Location"] == "/"


def test_who_was_here_is_known_by_the_provider_s_word_though_the_name_changed(provider: Provider) -> None:
    signed_in(Client())
    provider.person |= {"preferred_username": "hedy.lamarr"}
    again = Client()
    signed_in(again)
    assert (who(again), User.objects.count()) == ("hedy", 1)


def awaited(name: str, mail: str = "") -> User:
    """An account that an admin created without a password."""
    user = User(username=name, email=mail)
    user.set_unusable_password()
    user.save()
    return user


@pytest.mark.parametrize(("name", "mail"), [("hedy", "hedy@example.org"), ("h.lamarr", "Hedy@Example.org")])
def test_an_account_that_an_admin_created_is_linked_by_its_verified_address(
    provider: Provider, name: str, mail: str
) -> None:
    user = awaited(name, mail)
    client = Client()
    signed_in(client)
    assert (who(client), Identity.objects.get().user, User.objects.count()) == (name, user, 1)


@pytest.mark.parametrize("mail", ["", "somebody.else@example.org"])
def test_the_user_name_alone_does_not_claim_an_account(provider: Provider, mail: str) -> None:
    awaited("hedy", mail)
    client = Client()
    answer = signed_in(client)
    assert (answer.status_code, who(client), Identity.objects.count()) == (403, None, 0)
    assert "Ask a platform admin to check the account&#x27;s e-mail address" in answer.content.decode()


@pytest.mark.parametrize("claims", [{"email_verified": False}, {"email_verified": None},
                                    {"email_verified": "true"}, {"email": None}])  # fmt: skip
def test_an_address_that_is_not_verified_links_nothing(provider: Provider, claims: dict[str, Any]) -> None:
    awaited("hedy", "hedy@example.org")
    provider.person |= claims
    client = Client()
    assert (signed_in(client).status_code, who(client), Identity.objects.count()) == (403, None, 0)


def test_an_address_that_two_accounts_have_links_neither(provider: Provider) -> None:
    awaited("one", "hedy@example.org")
    awaited("two", "hedy@example.org")
    answer = signed_in(Client())
    assert (answer.status_code, Identity.objects.count()) == (403, 0)
    assert "More than one account has the e-mail address" in answer.content.decode()


def test_an_address_with_a_look_alike_letter_is_another_one(provider: Provider) -> None:
    awaited("mike", "mike@example.org")
    provider.person |= {"preferred_username": "other", "email": "m\u0131ke@example.org"}
    client = Client()
    signed_in(client)
    assert who(client) == "other"


@pytest.mark.parametrize("name", ["hedy", "Hedy"])
def test_an_account_with_a_password_is_not_taken_over(provider: Provider, name: str) -> None:
    User.objects.create_user(name, "hedy@example.org", password="correct horse battery")
    client = Client()
    answer = signed_in(client)
    assert (answer.status_code, who(client), Identity.objects.count()) == (403, None, 0)
    assert "already exists" in answer.content.decode()


def test_another_person_of_a_name_that_was_met_before_stays_out(provider: Provider) -> None:
    signed_in(Client())
    provider.person |= {"sub": "somebody else"}
    client = Client()
    assert (signed_in(client).status_code, who(client)) == (403, None)


@pytest.mark.parametrize("name", [None, "", "two words", "x" * 151, "<script>"])
def test_a_name_that_cannot_be_used_is_refused(provider: Provider, name: str | None) -> None:
    provider.person["preferred_username"] = name
    assert signed_in(Client()).status_code == 403
    assert not User.objects.exists()


def test_strangers_stay_out_where_admins_add_people(provider: Provider, settings: Any) -> None:
    settings.BERTH_OIDC_CREATE = False
    answer = signed_in(Client())
    assert (answer.status_code, User.objects.count()) == (403, 0)


def test_a_closed_account_stays_closed(provider: Provider) -> None:
    signed_in(Client())
    User.objects.update(is_active=False)
    client = Client()
    assert (signed_in(client).status_code, who(client)) == (403, None)


@pytest.mark.parametrize(
    "lie",
    [
        {"aud": "another client"},
        {"iss": "https://another.example"},
        {"exp": 1},
        {"nonce": "of another sign-in"},
        {"sub": None},
    ],
    ids=str,
)
def test_a_token_that_is_not_for_this_sign_in_is_refused(provider: Provider, lie: dict[str, Any]) -> None:
    provider.lies = lie
    client = Client()
    answer = signed_in(client)
    assert (answer.status_code, who(client), User.objects.count()) == (403, None, 0)


def test_a_token_that_somebody_else_signed_is_refused(provider: Provider) -> None:
    provider.key = RSAKey.generate_key(2048, {"kid": "one"}, auto_kid=False)
    client = Client()
    assert (signed_in(client).status_code, who(client)) == (403, None)


def test_an_answer_to_somebody_else_s_sign_in_is_refused(provider: Provider) -> None:
    stolen = sent_back(Client())
    client = Client()
    assert (client.get(stolen).status_code, who(client)) == (403, None)
    assert client.get("/login/sso/return?code=x&state=y").status_code == 403
    assert client.get("/login/sso/return").status_code == 403


def test_a_refusal_of_the_provider_is_told(provider: Provider) -> None:
    provider.refuses = "You are <b>not</b> in the group."
    answer = signed_in(Client())
    assert answer.status_code == 403
    assert "You are &lt;b&gt;not&lt;/b&gt; in the group." in answer.content.decode()


def test_a_provider_that_is_away_is_told_and_passwords_still_work(provider: Provider) -> None:
    provider.shutdown()
    provider.server_close()
    client = Client()
    assert client.get("/login/sso").status_code == 502
    User.objects.create_user("ada", password="correct horse battery")
    assert client.post("/login", {"username": "ada", "password": "correct horse battery"}).status_code == 302


def test_the_page_offers_it_only_where_it_is_set_up(provider: Provider, settings: Any) -> None:
    settings.BERTH_OIDC_NAME = "Example Corp"
    page = Client().get("/login?next=/quotas").content.decode()
    assert 'href="/login/sso?next=/quotas"' in page and "Sign in with Example Corp" in page
    settings.BERTH_OIDC_ISSUER = ""
    assert "/login/sso" not in Client().get("/login").content.decode()
    assert Client().get("/login/sso").status_code == 404


def test_user_name_taken_at_the_same_moment_is_refused_with_the_reason(
    provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    def another_was_faster(user: User) -> None:
        raise IntegrityError("duplicate key value violates unique constraint")

    monkeypatch.setattr(User, "save", another_was_faster)
    answer = signed_in(Client())
    assert answer.status_code == 403
    assert "An account with the user name hedy already exists" in answer.content.decode()
    assert not Identity.objects.exists()
