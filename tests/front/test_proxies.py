"""Tests that only trusted proxies can set the client address."""

import json
from pathlib import Path

import httpx
import pytest
from django.core.exceptions import ImproperlyConfigured

from berth.server.front.server import network_matcher
from berth.server.settings.web import networks
from tests.cast import make_cast
from tests.support.web_process import web_processes


def guess_passwords(address: str, count: int) -> list[int]:
    """Send wrong passwords, each from a different forged address, and return the statuses."""
    return [
        httpx.post(
            f"{address}/api/v1/login", content=json.dumps({"username": f"n{n}", "password": "wrong"}),
            headers={"Content-Type": "application/json", "X-Forwarded-For": f"198.51.100.{n}"},
            timeout=60, trust_env=False,
        ).status_code
        for n in range(count)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("trusted", "is_believed"),
    [
        pytest.param("", False, id="none", marks=pytest.mark.heavy),
        pytest.param("10.0.0.0/8", False, id="another"),
        pytest.param("127.0.0.1", True, id="this", marks=pytest.mark.heavy),
    ],
)
def test_forwarded_address_is_used_only_from_a_trusted_proxy(
    child_env: dict[str, str], tmp_path: Path, trusted: str, is_believed: bool
) -> None:
    # With a limit of one failure per minute, the second guess from an address is rejected.
    make_cast()
    env = {**child_env, "BERTH_RATE_LOGIN": "1", "BERTH_TRUSTED_PROXIES": trusted}
    env.pop("FORWARDED_ALLOW_IPS", None)
    with web_processes(env, tmp_path) as (address,):
        answers = guess_passwords(address, 6)  # a new minute may start between two guesses
    assert set(answers) == ({401} if is_believed else {401, 429})


def test_invalid_proxy_setting_error_shows_the_expected_format(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BERTH_TRUSTED_PROXIES", "10.0.0.5, proxy.example.org")
    with pytest.raises(ImproperlyConfigured, match=r"BERTH_TRUSTED_PROXIES: 'proxy.example.org'.*example"):
        networks("BERTH_TRUSTED_PROXIES")


def test_only_proxies_in_configured_networks_are_trusted() -> None:
    trusted = network_matcher(["10.0.0.0/24", "2001:db8::1/128"])
    assert [trusted(address) for address in ("10.0.0.7", "2001:db8::1", "10.0.1.7", "", "unix")] == [
        True, True, False, False, False,
    ]  # fmt: skip
