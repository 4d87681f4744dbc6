"""Fixtures for REST tests: a client for each user and one object of each kind."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pytest
from django.test import Client
from pytest_django import DjangoDbBlocker

from projects.actor import ALL_SCOPES
from projects.services.people import tokens
from tests.cast import Cast
from tests.harness.shared_rows import cast, shared_cast, shared_rows

__all__ = ["cast", "shared_cast"]

V1 = "/api/v1/"
OPENAPI_TYPE = "application/vnd.oai.openapi+json"


@dataclass
class Caller:
    """An HTTP client that sends JSON with one user's token."""

    secret: str = ""

    def __call__(
        self, method: str, path: str, body: Any = None, *, headers: dict[str, str] | None = None, **query: Any
    ) -> Any:
        sent = {"Authorization": f"Bearer {self.secret}"} if self.secret else {}
        sent |= headers or {}
        address = path if path.startswith("/") else V1 + path
        client = shared_client()
        if body is None:
            return client.generic(method, address, query_params=query or None, headers=sent)
        kind = "application/json"
        if isinstance(body, tuple):
            kind, body = body
        return client.generic(
            method,
            address,
            body if isinstance(body, bytes | str) else _json(body),
            kind,
            query_params=query or None,
            headers=sent,
        )

    def get(self, path: str, **query: Any) -> Any:
        return self("GET", path, **query)

    def post(self, path: str, body: Any = None, **headers: str) -> Any:
        return self("POST", path, body, headers={k.replace("_", "-"): v for k, v in headers.items()})


@lru_cache
def shared_client() -> Client:
    """Return a client that all callers share, because creating one is slow."""
    return Client()


@pytest.fixture(scope="session")
def openapi_description(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> dict[str, Any]:
    with django_db_blocker.unblock():
        answer = shared_client().get(f"{V1}schema", headers={"Accept": OPENAPI_TYPE})
    assert answer.status_code == 200
    description: dict[str, Any] = answer.json()
    return description


def _json(body: Any) -> bytes:
    import json

    return json.dumps(body).encode()


@pytest.fixture(autouse=True)
def reset_rate_limits(frozen_rate_limits: None) -> None:
    pass


@pytest.fixture(scope="module")
def scene(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[Any]:
    """Create one object of each kind for all tests in a file. Each test's changes are rolled back."""
    from tests.api.one_of_each import create_scene

    with shared_rows(django_db_blocker):
        yield create_scene()


@pytest.fixture
def caller(cast: Cast) -> Callable[..., Caller]:
    """Return a function: `caller("dave", "read")` is dave's client with a read-only token.

    `caller("")` sends no token.
    """

    def make(name: str, *scopes: str) -> Caller:
        if not name:
            return Caller()
        actor = cast.people[name]
        granted = sorted(scopes or ALL_SCOPES)
        label = "test " + " ".join(granted)
        actor.user.api_tokens.filter(name=label).delete()
        _, secret = tokens.issue(actor=actor, name=label, scopes=granted, expires_at=None)
        return Caller(secret)

    return make


@pytest.fixture
def alice(caller: Callable[..., Caller]) -> Caller:
    return caller("alice")


@pytest.fixture
def bob(caller: Callable[..., Caller]) -> Caller:
    return caller("bob")


@pytest.fixture
def carol(caller: Callable[..., Caller]) -> Caller:
    return caller("carol")


@pytest.fixture
def dave(caller: Callable[..., Caller]) -> Caller:
    return caller("dave")


@pytest.fixture
def erin(caller: Callable[..., Caller]) -> Caller:
    return caller("erin")


@pytest.fixture
def frank(caller: Callable[..., Caller]) -> Caller:
    return caller("frank")
