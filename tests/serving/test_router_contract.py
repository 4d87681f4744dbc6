"""Here every kind of router is held to the port's contract: sglang-router is the real one, as a process."""
import json
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

import pytest

from projects.serving.base import RouterClient, ServingError, Trouble
from projects.serving.fake import FakeRouter
from projects.serving.routers import SGLangRouter, StaticList
from projects.serving.wire import Wire
from tests.serving.conftest import HERE, Starts
from tests.serving.engine.server import Server
from tests.serving.routers import free_port, older_router, sglang_router

WIRE = Wire(HERE, seconds=5.0)
POOL = ThreadPoolExecutor(8)


class Stage(Protocol):
    """What a contract test needs besides the port."""

    client: RouterClient

    def engine(self) -> str: ...

    def answers(self, count: int = 4) -> set[str]:
        """Who answers so many requests to the router, one after the other."""


class HttpStage:
    def __init__(self, address: str, start: Starts) -> None:
        self.client, self.address, self.start = SGLangRouter(WIRE, address, seconds=10.0), address, start
        self.servers: dict[str, Server] = {}

    def engine(self) -> str:
        server = self.start(slots=8, seconds_per_token=0.01)
        self.servers[server.address] = server
        return server.address

    def answers(self, count: int = 4) -> set[str]:
        before = {address: server.engine.model.served for address, server in self.servers.items()}
        for _ in range(count):
            assert self.ask(1).fine
        return {one for one, server in self.servers.items() if server.engine.model.served > before[one]}

    def ask(self, tokens: int) -> Any:
        body = {"text": "x" * tokens, "sampling_params": {"max_new_tokens": tokens}}
        return WIRE.post(self.address, "/generate", body, seconds=20.0)


class FakeStage:
    def __init__(self, client: FakeRouter) -> None:
        self.client = client
        self.made = 0

    def engine(self) -> str:
        self.made += 1
        return f"http://engine-{self.made}"

    def answers(self, count: int = 4) -> set[str]:
        return {worker.address for worker in self.client.workers() if worker.healthy}


NAMES = {"engine.example.com": ("192.0.2.7",)}


def resolved(url: str) -> tuple[str, ...]:
    host = urlsplit(url).hostname or ""
    return NAMES.get(host, (host,))


class FileStage:
    """The file is read as nginx would, at the moment at which it is told to."""

    def __init__(self, folder: Path) -> None:
        self.path, self.seen = folder / "upstreams" / "chat.conf", folder / "seen.conf"
        copy = f"import shutil; shutil.copy({str(self.path)!r}, {str(self.seen)!r})"
        reload = [sys.executable, "-S", "-c", copy]
        self.client = StaticList(self.path, "chat", resolve=resolved, reload=reload)
        self.made = 0

    def engine(self) -> str:
        self.made += 1
        return f"http://10.0.0.{self.made}:30000"

    def answers(self, count: int = 4) -> set[str]:
        words = [line.split() for line in self.seen.read_text().splitlines()] if self.seen.exists() else []
        return {
            f"http://{line[1].removesuffix(';')}" for line in words
            if line[:1] == ["server"] and line[2] != "down;"
        }  # fmt: skip


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with sglang_router(tmp_path_factory.mktemp("router") / "log") as address:
        yield address


@pytest.fixture(params=["fake", "fake without marks", "static", "sglang", "older sglang"])
def stage(request: pytest.FixtureRequest, start: Starts, tmp_path: Path) -> Iterator[Stage]:
    kind = request.param
    if kind.startswith("fake"):
        yield FakeStage(FakeRouter(has_marks=kind == "fake"))
    elif kind == "static":
        yield FileStage(tmp_path)
    elif kind == "sglang":
        stage = HttpStage(request.getfixturevalue("real"), start)
        yield stage
        for worker in stage.client.workers():
            stage.client.unregister(worker.address)
    else:
        with older_router() as address:
            yield HttpStage(address, start)


def listed(client: RouterClient) -> dict[str, bool]:
    return {worker.address: worker.healthy for worker in client.workers()}


def test_registered_engines_get_requests(stage: Stage) -> None:
    one, other = stage.engine(), stage.engine()
    assert listed(stage.client) == {}
    for engine in (one, other):
        stage.client.register(engine, model="default")
    assert listed(stage.client) == {one: True, other: True}
    assert stage.answers() == {one, other}


def test_to_register_twice_is_to_register_once(stage: Stage) -> None:
    engine = stage.engine()
    stage.client.register(engine, model="default")
    stage.client.register(engine, model="default")
    assert listed(stage.client) == {engine: True}


@pytest.mark.shows("RLX-56")
def test_an_engine_that_was_unregistered_gets_nothing_and_is_forgotten(stage: Stage) -> None:
    one, other = stage.engine(), stage.engine()
    for engine in (one, other):
        stage.client.register(engine, model="default")
    stage.client.unregister(one)
    stage.client.unregister(one)
    assert listed(stage.client) == {other: True}
    assert stage.answers() == {other}


@pytest.mark.shows("RLX-37", "RLX-50")
def test_an_engine_that_is_marked_gets_nothing_until_it_is_marked_again(stage: Stage) -> None:
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


def test_a_router_that_was_started_anew_learns_by_a_mark(stage: Stage) -> None:
    engine = stage.engine()
    stage.client.mark_unhealthy(engine)
    assert listed(stage.client).get(engine, False) is False
    stage.client.mark_healthy(engine)
    assert listed(stage.client) == {engine: True}


def test_the_last_engine_may_go(stage: Stage) -> None:
    engine = stage.engine()
    stage.client.register(engine, model="default")
    stage.client.unregister(engine)
    assert listed(stage.client) == {}


# --- the real router, and the older one


@pytest.fixture(params=["sglang", "older sglang"])
def routed(request: pytest.FixtureRequest, start: Starts) -> Iterator[HttpStage]:
    if request.param == "sglang":
        yield HttpStage(request.getfixturevalue("real"), start)
        return
    with older_router() as address:
        yield HttpStage(address, start)


def under_way(stage: HttpStage, engine: str, count: int) -> list[Future[Any]]:
    asked = [POOL.submit(stage.ask, 60) for _ in range(count)]
    model, until = stage.servers[engine].engine.model, time.monotonic() + 60
    while model.running < count:
        assert time.monotonic() < until
        time.sleep(0.01)
    return asked


@pytest.mark.shows("RLX-09", "RLX-50")
def test_requests_under_way_end_well_when_their_engine_is_marked(routed: HttpStage) -> None:
    engine = routed.engine()
    routed.client.register(engine, model="default")
    asked = under_way(routed, engine, 3)
    routed.client.mark_unhealthy(engine)
    assert routed.servers[engine].engine.model.running == 3
    assert [future.result().fine for future in asked] == [True] * 3
    assert routed.servers[engine].engine.model.served == 3


def test_an_engine_that_is_never_well_is_not_registered(routed: HttpStage) -> None:
    client = SGLangRouter(WIRE, routed.address, seconds=0.6)
    nobody = f"http://127.0.0.1:{free_port()}"
    with pytest.raises(ServingError) as caught:
        client.register(nobody, model="default")
    assert caught.value.trouble is Trouble.TIMEOUT
    assert nobody not in listed(client)


def test_a_router_that_is_down_is_unreachable() -> None:
    client = SGLangRouter(WIRE, f"http://127.0.0.1:{free_port()}")
    calls: list[Callable[[], object]] = [
        lambda: client.register("http://engine", model="m"), lambda: client.unregister("http://engine"),
        lambda: client.mark_unhealthy("http://engine"), lambda: client.mark_healthy("http://engine"),
        client.workers,
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(ServingError) as caught:
            call()
        assert caught.value.trouble is Trouble.UNREACHABLE


@pytest.mark.parametrize("said", ['{"workers": 4}', '{"workers": [4]}', "[]", "<html>"])
def test_a_list_that_is_none_is_unreadable(start: Starts, said: str) -> None:
    from tests.serving.engine.server import Fault

    server = start()
    server.engine.faults["/workers"] = Fault(status=200, body=said)
    with pytest.raises(ServingError) as caught:
        SGLangRouter(WIRE, server.address).workers()
    assert caught.value.trouble is Trouble.UNREADABLE


# --- the list in a file


def test_the_file_is_never_half_written(tmp_path: Path) -> None:
    stage = FileStage(tmp_path)
    for number in range(3):
        stage.client.register(f"http://10.0.0.{number}:80", model="m")
    text = stage.path.read_text()
    assert text.startswith("# Berth writes this file.\nupstream chat {\n    server 10.0.0.0:80;")
    assert text.endswith("}\n")
    assert sorted(path.name for path in stage.path.parent.iterdir()) == [".chat.conf.lock", "chat.conf"]


def test_a_file_without_engines_still_names_a_server(tmp_path: Path) -> None:
    stage = FileStage(tmp_path)
    stage.client.register("http://10.0.0.1:80", model="m")
    stage.client.unregister("http://10.0.0.1:80")
    assert "    server 127.0.0.1:9 down;  # nobody" in stage.path.read_text().splitlines()


def test_another_process_goes_on_from_the_file(tmp_path: Path) -> None:
    stage = FileStage(tmp_path)
    stage.client.register("https://engine.example.com", model="m")
    stage.client.mark_unhealthy("https://engine.example.com")
    again = StaticList(stage.path, "chat", resolve=resolved)
    assert listed(again) == {"https://engine.example.com": False}


def test_a_change_that_nginx_was_not_told_of_is_told_again(tmp_path: Path) -> None:
    path, told = tmp_path / "chat.conf", tmp_path / "told"
    failing = StaticList(path, "chat", resolve=resolved, reload=["sh", "-c", "echo no such pid >&2; exit 3"])
    with pytest.raises(ServingError, match="sh answered 3: no such pid") as caught:
        failing.register("http://10.0.0.1:80", model="m")
    assert caught.value.trouble is Trouble.REFUSED
    working = StaticList(path, "chat", resolve=resolved, reload=["touch", str(told)])
    working.register("http://10.0.0.1:80", model="m")
    assert told.exists()
    told.unlink()
    working.register("http://10.0.0.1:80", model="m")
    assert not told.exists()


def test_many_at_once_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "chat.conf"
    engines = [f"http://10.0.0.{number}:30000" for number in range(20)]
    each = partial(StaticList, path, "chat", resolve=resolved)
    list(POOL.map(lambda engine: each().register(engine, model="m"), engines))
    assert listed(each()) == dict.fromkeys(sorted(engines), True)


@pytest.mark.parametrize("name", ["", "a b", "x;}", "1st", "a" * 101])
def test_an_upstream_has_a_plain_name(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="no name of an upstream"):
        StaticList(tmp_path / "chat.conf", name, resolve=resolved)


def test_a_path_cannot_be_kept_in_a_list(tmp_path: Path) -> None:
    router = StaticList(tmp_path / "chat.conf", "chat", resolve=resolved)
    with pytest.raises(ServingError) as caught:
        router.register("http://10.0.0.1:80/v1", model="m")
    assert caught.value.trouble is Trouble.UNSUPPORTED


def test_a_folder_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text(json.dumps({}))
    router = StaticList(tmp_path / "file" / "chat.conf", "chat", resolve=resolved)
    with pytest.raises(ServingError) as caught:
        router.register("http://10.0.0.1:80", model="m")
    assert caught.value.trouble is Trouble.UNREACHABLE
