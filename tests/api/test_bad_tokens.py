"""Repeated bad tokens throttle their sender and nobody else."""

from typing import Any

import pytest
from django.core.cache import cache
from django.test import Client

from berth.server.api import rate_limits
from projects.services.people import tokens
from tests.cast import Cast


@pytest.fixture(autouse=True)
def few(settings: Any) -> None:
    settings.BERTH_RATE_LIMITS = {**settings.BERTH_RATE_LIMITS, "bad_token": 3}
    cache.clear()


def ask(secret: str, address: str = "203.0.113.7") -> Any:
    return Client().get("/api/v1/whoami", headers={"Authorization": f"Bearer {secret}"}, REMOTE_ADDR=address)


def test_an_address_runs_out_of_wrong_guesses(cast: Cast) -> None:
    answers = [ask(f"berth_{number}") for number in range(5)]
    assert [answer.status_code for answer in answers] == [401, 401, 401, 429, 429]
    assert int(answers[-1].headers["Retry-After"]) > 0
    assert answers[-1].headers["Content-Type"] == "application/problem+json"
    assert ask("berth_x", "203.0.113.8").status_code == 401, "another address has its own"


def test_nobody_makes_a_count_forgotten_by_filling_the_memory_with_others(cast: Cast) -> None:
    for number in range(3):
        ask(f"berth_{number}")
    for number in range(500):
        rate_limits.spend("login", f"name guess{number}")
    assert ask("berth_x").status_code == 429


def test_a_token_that_counts_always_does(cast: Cast) -> None:
    _, secret = tokens.issue(acting=cast.dave, name="ci", scopes=["read"], expires_at=None)
    for number in range(5):
        ask(f"berth_{number}")
    assert ask(secret).status_code == 200
