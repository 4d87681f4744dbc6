"""Fixtures for service tests: a stage with a service, and API callers."""

from collections.abc import Callable, Iterator

import pytest
from django.core.cache import cache

from projects.services.people import tokens
from tests.api.conftest import Caller
from tests.services.stage import ServiceStage, make_stage


@pytest.fixture(autouse=True)
def clear_cache() -> Iterator[None]:
    cache.clear()
    yield
    cache.clear()


@pytest.fixture
def stage(transactional_db: None) -> ServiceStage:
    return make_stage()


@pytest.fixture
def caller(stage: ServiceStage) -> Callable[[str], Caller]:
    def make(name: str) -> Caller:
        actor = stage.stage.cast.people[name]
        scopes = ["read", "write"]
        return Caller(tokens.issue(actor=actor, name="test", scopes=scopes, expires_at=None)[1])

    return make


@pytest.fixture
def dave(caller: Callable[[str], Caller]) -> Caller:
    return caller("dave")
