"""Contract tests for every router, including a real sglang-router."""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol

import pytest

from projects.serving.base import ErrorKind, RouterClient, ServingError
from projects.serving.http_client import HttpClient
from projects.serving.routers import SGLangRouter
from tests.fakes.serving import FakeRouter
from tests.serving.conftest import HERE, Starts
from tests.serving.engine.server import Server
from tests.serving.routers import older_router, sglang_router
from tests.serving.static_list import FileStage, listed
from tests.support.ports import free_port

HTTP_CLIENT = HttpClient(HERE, seconds=60.0)
POOL = ThreadPoolExecutor(8)


class Stage(Protocol):
    """Operations that the contract tests need in addition to the router client."""

    @property
    def client(self) -> RouterClient: ...

    def engine(self) -> str: ...

    def answers(self, count: int = 4) -> set[str]:
        """Send `count` requests in sequence, and return the engine that responded to each."""


class HttpStage:
    def __init__(self, address: str, start: Starts) -> None:
        self.client, self.address, self.start = (
            SGLangRouter(HTTP_CLIENT, address, seconds=120.0),
            address,
            start,
        )
        self.servers: dict[str, Server] = {}

    def engine(self) -> str:
        server = self.start(slots=8, seconds_per_token=0.01)
        self.servers[server.address] = server
        return server.address

    def answers(self, count: int = 4) -> set[str]:
        before = {address: server.engine.model.served for address, server in self.servers.items()}
        for _ in range(count):
            assert self.ask(1).is_success
        return {one for one, server in self.servers.items() if server.engine.model.served > before[one]}

    def ask(self, tokens: int) -> Any:
        body = {"text": "x" * tokens, "sampling_params": {"max_new_tokens": tokens}}
        return HTTP_CLIENT.post(self.address, "/generate", body, seconds=120.0)


class FakeStage:
    def __init__(self, client: FakeRouter) -> None:
        self.client = client
        self.made = 0

    def engine(self) -> str:
        self.made += 1
        return f"http://engine-{self.made}"

    def answers(self, count: int = 4) -> set[str]:
        return {worker.address for worker in self.client.workers() if worker.healthy}


@pytest.fixture(scope="module")
def real_router(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with sglang_router(tmp_path_factory.mktemp("router") / "log") as address:
        yield address


@pytest.fixture(params=["fake", "fake without marks", "static", "sglang", "older sglang"])
def stage(request: pytest.FixtureRequest, start: Starts, tmp_path: Path) -> Iterator[Stage]:
    kind = request.param
    if kind.startswith("fake"):
        yield FakeStage(FakeRouter(supports_marks=kind == "fake"))
    elif kind == "static":
        yield FileStage(tmp_path)
    elif kind == "sglang":
        stage = HttpStage(request.getfixturevalue("real_router"), start)
        yield stage
        for worker in stage.client.workers():
            stage.client.unregister(worker.address)
    else:
        with older_router() as address:
            yield HttpStage(address, start)


@pytest.mark.every_case
def test_registered_engines_receive_requests(stage: Stage) -> None:
    one, other = stage.engine(), stage.engine()
    assert listed(stage.client) == {}
    for engine in (one, other):
        stage.client.register(engine, model="default")
    assert listed(stage.client) == {one: True, other: True}
    assert stage.answers() == {one, other}


def test_engine_registered_twice_is_listed_once(stage: Stage) -> None:
    engine = stage.engine()
    stage.client.register(engine, model="default")
    stage.client.register(engine, model="default")
    assert listed(stage.client) == {engine: True}


@pytest.mark.shows("RLX-56")
def test_unregistered_engine_receives_no_requests(stage: Stage) -> None:
    one, other = stage.engine(), stage.engine()
    for engine in (one, other):
        stage.client.register(engine, model="default")
    stage.client.unregister(one)
    stage.client.unregister(one)
    assert listed(stage.client) == {other: True}
    assert stage.answers() == {other}


@pytest.mark.shows("RLX-37", "RLX-50")
def test_unhealthy_engine_receives_no_requests_until_marked_healthy(stage: Stage) -> None:
    one, other = stage.engine(), stage.engine()
    for engine in (one, other):
        stage.client.register(engine, model="default")
    stage.client.mark_unhealthy(one)
    stage.client.mark_unhealthy(one)
    assert listed(stage.client).get(one, False) is False
    assert stage.answers() == {other}
    stage.client.mark_healthy(one)
    stage.client.mark_healthy(one)
    assert stage.answers() == {one, other}


def test_engine_marked_healthy_is_added_to_a_restarted_router(stage: Stage) -> None:
    engine = stage.engine()
    stage.client.mark_unhealthy(engine)
    assert listed(stage.client).get(engine, False) is False
    stage.client.mark_healthy(engine)
    assert listed(stage.client) == {engine: True}


def test_last_engine_can_be_unregistered(stage: Stage) -> None:
    engine = stage.engine()
    stage.client.register(engine, model="default")
    stage.client.unregister(engine)
    assert listed(stage.client) == {}


# --- the real router and the router with the older API


@pytest.fixture(params=["sglang", "older sglang"])
def routed(request: pytest.FixtureRequest, start: Starts) -> Iterator[HttpStage]:
    if request.param == "sglang":
        yield HttpStage(request.getfixturevalue("real_router"), start)
        return
    with older_router() as address:
        yield HttpStage(address, start)


def start_requests(stage: HttpStage, engine: str, count: int) -> list[Future[Any]]:
    model, until = stage.servers[engine].engine.model, time.monotonic() + 60
    model.is_held = True
    futures = [POOL.submit(stage.ask, 60) for _ in range(count)]
    while model.running < count:
        assert time.monotonic() < until
        time.sleep(0.01)
    return futures


@pytest.mark.heavy
@pytest.mark.shows("RLX-09", "RLX-50")
def test_requests_in_flight_complete_after_their_engine_is_marked_unhealthy(routed: HttpStage) -> None:
    engine = routed.engine()
    routed.client.register(engine, model="default")
    futures = start_requests(routed, engine, 3)
    routed.client.mark_unhealthy(engine)
    model = routed.servers[engine].engine.model
    assert model.running == 3
    model.is_held = False
    assert [future.result().is_success for future in futures] == [True] * 3
    assert model.served == 3


def test_engine_that_never_becomes_healthy_is_not_registered(routed: HttpStage) -> None:
    client = SGLangRouter(HTTP_CLIENT, routed.address, seconds=0.6)
    closed = f"http://127.0.0.1:{free_port()}"
    with pytest.raises(ServingError) as caught:
        client.register(closed, model="default")
    assert caught.value.kind is ErrorKind.TIMEOUT
    assert closed not in listed(client)


def test_stopped_router_is_reported_as_unreachable() -> None:
    client = SGLangRouter(HTTP_CLIENT, f"http://127.0.0.1:{free_port()}")
    calls: list[Callable[[], object]] = [
        lambda: client.register("http://engine", model="m"), lambda: client.unregister("http://engine"),
        lambda: client.mark_unhealthy("http://engine"), lambda: client.mark_healthy("http://engine"),
        client.workers,
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(ServingError) as caught:
            call()
        assert caught.value.kind is ErrorKind.UNREACHABLE


@pytest.mark.parametrize("body", ['{"workers": 4}', '{"workers": [4]}', "[]", "<html>"])
def test_invalid_worker_list_is_reported_as_unreadable(start: Starts, body: str) -> None:
    from tests.serving.engine.server import Fault

    server = start()
    server.engine.faults["/workers"] = Fault(status=200, body=body)
    with pytest.raises(ServingError) as caught:
        SGLangRouter(HTTP_CLIENT, server.address).workers()
    assert caught.value.kind is ErrorKind.UNREADABLE
