"""Fixtures for page tests: the cast, and a signed-in client for each user."""

import pytest
from django.test import Client

from tests.cast import Cast, make_cast


@pytest.fixture(autouse=True)
def reset_rate_limits(frozen_rate_limits: None) -> None:
    """Give each test full rate limits."""


@pytest.fixture
def cast(db: None) -> Cast:
    return make_cast()


@pytest.fixture
def sign_in(cast: Cast):
    def signed_in(name: str) -> Client:
        client = Client()
        client.force_login(cast.people[name].user)
        return client

    return signed_in
