"""Tests that invalid tokens throttle only the client that sends them."""

from typing import Any

import pytest
from django.test import Client

from berth.server.api import rate_limits
from projects.services.people import tokens
from tests.cast import Cast


@pytest.fixture(autouse=True)
def low_limit(settings: Any) -> None:
    settings.BERTH_RATE_LIMITS = {**settings.BERTH_RATE_LIMITS, "bad_token": 3}


def request_with(secret: str, address: str = "203.0.113.7") -> Any:
    return Client().get("/api/v1/whoami", headers={"Authorization": f"Bearer {secret}"}, REMOTE_ADDR=address)


def test_client_address_that_sends_many_invalid_tokens_is_throttled(cast: Cast) -> None:
    answers = [request_with(f"berth_{number}") for number in range(5)]
    assert [answer.status_code for answer in answers] == [401, 401, 401, 429, 429]
    assert int(answers[-1].headers["Retry-After"]) > 0
    assert answers[-1].headers["Content-Type"] == "application/problem+json"
    assert request_with("berth_x", "203.0.113.8").status_code == 401, "each address has its own limit"


@pytest.mark.heavy
def test_invalid_token_throttle_survives_many_other_rate_limit_entries(cast: Cast) -> None:
    for number in range(3):
        request_with(f"berth_{number}")
    for number in range(500):
        rate_limits.spend("login", f"name guess{number}")
    assert request_with("berth_x").status_code == 429


def test_valid_token_is_accepted_from_a_throttled_client_address(cast: Cast) -> None:
    _, secret = tokens.issue(actor=cast.dave, name="ci", scopes=["read"], expires_at=None)
    for number in range(5):
        request_with(f"berth_{number}")
    assert request_with(secret).status_code == 200
