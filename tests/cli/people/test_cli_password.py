"""Tests for `berth password` and for passwords without a terminal."""

import subprocess
from typing import Any

import pytest
from django.core.cache import cache

from tests.cast import Cast
from tests.cli.conftest import RUN, Berth, token_of

pytestmark = pytest.mark.django_db(transaction=True)
OLD, NEW = "correct horse battery", "a better horse battery"


@pytest.fixture(autouse=True)
def reset_rate_limits() -> None:
    cache.clear()


@pytest.fixture
def signed_in(berth: Berth, cast: Cast, live_server: Any) -> Berth:
    assert not berth("login", live_server.url, "-u", "dave", "--password-stdin", typed=f"{OLD}\n").returncode
    return berth


def test_cli_stays_signed_in_after_a_password_change(signed_in: Berth) -> None:
    done = signed_in("password", typed=f"{OLD}\n{NEW}\n{NEW}\n")
    assert done.returncode == 0, done.stderr
    assert done.stderr.endswith("Password changed, 1 token revoked.\n")
    assert signed_in("whoami").returncode == 0
    assert signed_in("logout").returncode == 0
    assert signed_in("whoami").returncode == 3


def test_old_password_is_no_longer_accepted(signed_in: Berth, live_server: Any) -> None:
    assert signed_in("password", "--password-stdin", typed=f"{OLD}\n{NEW}\n").returncode == 0
    for password, code in ((OLD, 3), (NEW, 0)):
        again = signed_in("login", live_server.url, "-u", "dave", "--password-stdin", typed=f"{password}\n")
        assert again.returncode == code


def test_other_tokens_are_revoked_on_request(signed_in: Berth, cast: Cast) -> None:
    by_hand = {"BERTH_TOKEN": token_of(cast.dave)}
    assert signed_in("password", "--password-stdin", typed=f"{OLD}\n{NEW}\n").returncode == 0
    assert signed_in("whoami", **by_hand).returncode == 0
    done = signed_in("password", "--password-stdin", "--revoke-tokens", typed=f"{NEW}\n{OLD}\n")
    assert done.stderr == "Password changed, 2 tokens revoked.\n"
    assert signed_in("whoami", **by_hand).returncode == 3
    assert signed_in("whoami").returncode == 0


def test_error_names_the_invalid_field(signed_in: Berth) -> None:
    wrong = signed_in("password", "--password-stdin", typed=f"wrong\n{NEW}\n")
    assert wrong.returncode == 2
    assert "current_password" in wrong.stderr and "does not match" in wrong.stderr
    assert "too short" in signed_in("password", "--password-stdin", typed=f"{OLD}\nshort\n").stderr
    assert "two lines" in signed_in("password", "--password-stdin", typed=f"{OLD}\n").stderr
    assert signed_in("whoami").returncode == 0


def test_new_token_is_printed_if_the_old_one_came_from_the_environment(
    berth: Berth, cast: Cast, live_server: Any
) -> None:
    from berth.client import Client, Settings

    with Client(Settings(live_server.url, "", "")) as client:
        token = client.sign_in("dave", OLD)
    done = berth("password", "--password-stdin", typed=f"{OLD}\n{NEW}\n", BERTH_TOKEN=token)
    assert done.returncode == 0, done.stderr
    assert berth("whoami", BERTH_TOKEN=token).returncode == 3
    assert berth("whoami", BERTH_TOKEN=done.stdout.strip()).returncode == 0


@pytest.mark.parametrize(
    ("words", "label", "instead"),
    [
        (["login", "-u", "dave"], "Password", "Use --username with --password-stdin, or --token."),
        (["login"], "Username", "Use --username with --password-stdin, or --token."),
        (["password"], "Current password", "Use --password-stdin."),
    ],
)
def test_password_command_without_a_terminal_suggests_its_options(
    environment: dict[str, str], cast: Cast, words: list[str], label: str, instead: str
) -> None:
    rejected = subprocess.run(
        [*RUN, *words], stdin=subprocess.DEVNULL, env={**environment, "BERTH_TOKEN": token_of(cast.dave)},
        start_new_session=True, capture_output=True, text=True, timeout=180, check=False,
    )  # fmt: skip
    assert (rejected.returncode, rejected.stdout.strip()) == (2, "")
    *_, message = rejected.stderr.splitlines()
    assert (
        message == f"berth: {label}: the command cannot prompt for this value without a terminal. {instead}"
    )
    assert "Warning" not in rejected.stderr and "Traceback" not in rejected.stderr
