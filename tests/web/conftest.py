"""Fixtures for page tests: the cast, and a signed-in client for each user."""

import pytest
from django.test import Client

from tests.cast import Cast
from tests.shared_rows import cast, shared_cast

__all__ = ["cast", "shared_cast"]


@pytest.fixture(autouse=True)
def reset_rate_limits(frozen_rate_limits: None) -> None:
    """Give each test full rate limits."""


@pytest.fixture
def sign_in(cast: Cast):
    def signed_in(name: str) -> Client:
        client = Client()
        client.force_login(cast.people[name].user)
        return client

    return signed_in
