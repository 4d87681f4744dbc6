"""Local inference engines for the serving tests."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from projects.serving.addresses import THIS_MACHINE, AddressPolicy
from projects.serving.http_client import HttpClient
from tests.serving.engine.model import Model
from tests.serving.engine.server import Server, SimulatedEngine, serving
from tests.serving.engine.weights import Weights

HERE = AddressPolicy(THIS_MACHINE)
Starts = Callable[..., Server]


@pytest.fixture
def start() -> Iterator[Starts]:
    """Return `start(kind="openai", slots=2, ...)`, which starts an engine that runs until the test ends."""
    with ExitStack() as stack:

        def begin(
            *, name: str = "default", kind: str = "sglang", weights: Weights | None = None, **model: Any
        ) -> Server:
            engine = SimulatedEngine(Model(name, **model), weights or Weights(), kind)
            return stack.enter_context(serving(engine))

        yield begin


@pytest.fixture
def http_client() -> HttpClient:
    return HttpClient(HERE, seconds=60.0)
