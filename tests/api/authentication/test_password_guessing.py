"""Tests for the limits on password guessing."""

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from berth.server.api.rate_limits import ATTACK_FACTOR, TRIES_UNDER_ATTACK
from tests.cast import Cast

PASSWORD = "correct horse battery"
LIMIT = 20
SignIn = Callable[[str, str, str], int]


@pytest.fixture(autouse=True)
def low_limit(cast: Cast, settings: Any) -> None:
    settings.BERTH_RATE_LIMITS = {**settings.BERTH_RATE_LIMITS, "login": LIMIT}


def sign_in_by_form(name: str, password: str, address: str) -> int:
    """Sign in through the login page. If the password is wrong, return 401 as REST does, although the page
    returns 200.
    """
    answer = Client().post("/login", {"username": name, "password": password}, REMOTE_ADDR=address)
    return {200: 401, 302: 200}.get(answer.status_code, answer.status_code)


def sign_in_by_rest(name: str, password: str, address: str) -> int:
    body = {"username": name, "password": password}
    return (
        Client().post("/api/v1/login", body, content_type="application/json", REMOTE_ADDR=address).status_code
    )


@pytest.mark.parametrize("sign_in", [sign_in_by_form, sign_in_by_rest])
def test_password_guesses_from_another_address_do_not_lock_out_the_user(sign_in: SignIn) -> None:
    guesses = [sign_in("dave", "wrong", "198.51.100.1") for _ in range(LIMIT + 5)]
    assert guesses == [401] * LIMIT + [429] * 5
    assert sign_in("dave", PASSWORD, "203.0.113.1") == 200


@pytest.mark.parametrize("sign_in", [sign_in_by_form, sign_in_by_rest])
def test_successful_sign_ins_are_not_rate_limited(sign_in: SignIn) -> None:
    assert {sign_in("dave", PASSWORD, "203.0.113.1") for _ in range(LIMIT + 5)} == {200}


@pytest.mark.heavy
def test_rate_limit_per_address_covers_all_usernames() -> None:
    guesses = [sign_in_by_rest(f"name{n}", "wrong", "198.51.100.1") for n in range(LIMIT + 1)]
    assert guesses == [401] * LIMIT + [429]


def test_password_guesses_from_many_addresses_reduce_the_limit_per_address() -> None:
    addresses = [f"198.51.100.{n}" for n in range(LIMIT * ATTACK_FACTOR // 10)]
    assert {sign_in_by_rest("dave", "wrong", address) for address in addresses for _ in range(10)} == {401}
    late = [sign_in_by_rest("dave", "wrong", "192.0.2.1") for _ in range(TRIES_UNDER_ATTACK + 2)]
    assert late == [401] * TRIES_UNDER_ATTACK + [429] * 2
    assert sign_in_by_rest("dave", "wrong", addresses[0]) == 429, (
        "an address with earlier guesses is throttled"
    )
    assert sign_in_by_rest("dave", PASSWORD, "203.0.113.1") == 200, "the owner can sign in"
    assert [sign_in_by_rest("grace", "wrong", "192.0.2.2") for _ in range(5)] == [401] * 5, (
        "other usernames are not throttled"
    )


@pytest.mark.heavy
def test_spelling_variants_of_a_username_share_one_rate_limit() -> None:
    addresses = [f"198.51.100.{n}" for n in range(LIMIT * ATTACK_FACTOR // 10)]
    for address in addresses:
        for name in (
            "dave",
            "Dave",
            "\uff44ave",
            "DAVE",
            " dave",
            "dave\u3000",
            "  dave ",
            "\tdave",
            "dave",
            "dave\n",
        ):
            assert sign_in_by_form(name, "wrong", address) == 401
    late = [sign_in_by_rest("dave", "wrong", "192.0.2.1") for _ in range(TRIES_UNDER_ATTACK + 1)]
    assert late == [401] * TRIES_UNDER_ATTACK + [429]


@pytest.mark.heavy
def test_addresses_in_one_ipv6_network_share_one_rate_limit() -> None:
    guesses = [sign_in_by_rest("dave", "wrong", f"2001:db8:0:1::{n:x}") for n in range(1, LIMIT + 3)]
    assert guesses == [401] * LIMIT + [429] * 2
    assert sign_in_by_rest("dave", PASSWORD, "2001:db8:0:2::1") == 200


def test_admin_site_login_redirects_without_checking_the_password(cast: Cast) -> None:
    User.objects.filter(username="alice").update(is_staff=True)
    guess = {"username": "alice", "password": PASSWORD}
    for browser in (Client(), Client()):
        answer = browser.post("/admin/login/", guess)
        assert answer.status_code == 302
        assert browser.get("/account").status_code == 302, "not signed in"


@pytest.mark.heavy
def test_signed_in_user_without_access_cannot_guess_passwords_at_the_admin_site() -> None:
    browser = Client()
    assert browser.login(username="dave", password=PASSWORD)
    answers = [
        browser.post("/admin/login/", {"username": "alice", "password": word}) for word in ("wrong", PASSWORD)
    ]
    assert [answer.status_code for answer in answers] == [403, 403]
    assert browser.get("/account").context["user"].username == "dave"
