"""Contract tests for every inference engine over HTTP."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Protocol

import pytest

from projects.serving.base import EngineAdapter, ErrorKind, Identity, ServingError
from projects.serving.engines import engine_adapter
from projects.serving.http_client import HttpClient
from projects.serving.metrics import parse_metrics
from tests.fakes.serving import FakeEngine, FakeEngines
from tests.serving.conftest import HERE, Starts
from tests.serving.engine.server import Fault, Server
from tests.serving.engine.weights import Weights

HTTP_CLIENT = HttpClient(HERE, seconds=60.0)


class Stage(Protocol):
    """Operations that the contract tests need in addition to the engine adapter."""

    @property
    def adapter(self) -> EngineAdapter: ...

    def begin(self, *, weights: str = "1", model: str = "default") -> str: ...

    def make_unhealthy(self, engine: str) -> None: ...

    def end(self, engine: str) -> None: ...

    def work(self, engine: str, requests: int) -> Callable[[], list[bool]]:
        """Start requests in the engine. Return a function that waits and returns the answered requests."""

    def held(self, engine: str) -> str:
        """Return the engine's actual weights."""


class FakeStage:
    def __init__(self, _: Starts, *, syncs_weights: bool = True) -> None:
        self.adapter = self.fake = FakeEngines(syncs_weights=syncs_weights)

    def begin(self, *, weights: str = "1", model: str = "default") -> str:
        address = f"http://engine-{len(self.fake.engines)}"
        text = "sglang:num_running_reqs 0\nsglang:num_queue_reqs 0\n"
        self.fake.appear(address, FakeEngine(Identity(model, weights), weights, text))
        return address

    def make_unhealthy(self, engine: str) -> None:
        self.fake.make_unhealthy(engine)

    def end(self, engine: str) -> None:
        self.fake.vanish(engine)

    def work(self, engine: str, requests: int) -> Callable[[], list[bool]]:
        self.fake.run(engine, requests)

        def answered() -> list[bool]:
            aborted = self.fake.engines[engine].aborted
            self.fake.run(engine, 0)
            return [False] * aborted + [True] * (requests - aborted)

        return answered

    def held(self, engine: str) -> str:
        return self.fake.engines[engine].weights


class HttpStage:
    def __init__(self, start: Starts, kind: str) -> None:
        self.adapter, self.kind, self.start = engine_adapter(kind, HTTP_CLIENT), kind, start
        self.servers: dict[str, Server] = {}
        self.pool = ThreadPoolExecutor(8)

    def begin(self, *, weights: str = "1", model: str = "default") -> str:
        held = Weights(f"weights {weights}".encode(), weights)
        server = self.start(name=model, kind=self.kind, weights=held, slots=2, seconds_per_token=0.02)
        self.servers[server.address] = server
        return server.address

    def make_unhealthy(self, engine: str) -> None:
        self.servers[engine].engine.healthy = False

    def end(self, engine: str) -> None:
        self.servers[engine].shutdown()
        self.servers[engine].server_close()

    def work(self, engine: str, requests: int) -> Callable[[], list[bool]]:
        model = self.servers[engine].engine.model
        model.is_held = True
        futures = [self.pool.submit(self._chat, engine) for _ in range(requests)]
        until = time.monotonic() + 60
        while model.running + model.queued < requests:
            assert time.monotonic() < until
            time.sleep(0.005)

        def answered() -> list[bool]:
            model.is_held = False
            return [future.result() for future in futures]

        return answered

    def held(self, engine: str) -> str:
        return self.servers[engine].engine.weights.held.decode().removeprefix("weights ")

    @staticmethod
    def _chat(engine: str) -> bool:
        return HTTP_CLIENT.post(engine, "/v1/chat/completions", {"max_tokens": 20}, seconds=120.0).is_success


SYNCING: dict[str, Callable[[Starts], Stage]] = {
    "fake": FakeStage,
    "sglang": lambda start: HttpStage(start, "sglang"),
}
PLAIN: dict[str, Callable[[Starts], Stage]] = {
    "plain fake": lambda start: FakeStage(start, syncs_weights=False),
    "openai": lambda start: HttpStage(start, "openai"),
}


@pytest.fixture(params=[*SYNCING, *PLAIN])
def stage(request: pytest.FixtureRequest, start: Starts) -> Stage:
    return (SYNCING | PLAIN)[request.param](start)


@pytest.fixture(params=list(SYNCING))
def stage_with_weight_sync(request: pytest.FixtureRequest, start: Starts) -> Stage:
    return SYNCING[request.param](start)


@pytest.fixture(params=list(PLAIN))
def stage_without_weight_sync(request: pytest.FixtureRequest, start: Starts) -> Stage:
    return PLAIN[request.param](start)


def error_kind(call: Callable[[], object]) -> ErrorKind:
    with pytest.raises(ServingError) as caught:
        call()
    return caught.value.kind


@pytest.mark.every_case
def test_health_check_distinguishes_healthy_and_unhealthy_engines(stage: Stage) -> None:
    engine = stage.begin()
    stage.adapter.check_health(engine)
    stage.make_unhealthy(engine)
    assert error_kind(lambda: stage.adapter.check_health(engine)) is ErrorKind.REJECTED


def test_stopped_engine_is_reported_as_unreachable(stage: Stage) -> None:
    engine = stage.begin()
    stage.end(engine)
    for call in (stage.adapter.check_health, stage.adapter.identity, stage.adapter.metrics):
        assert error_kind(partial(call, engine)) is ErrorKind.UNREACHABLE


def test_engine_reports_its_model(stage: Stage) -> None:
    assert stage.adapter.identity(stage.begin(model="llama")).model == "llama"


def test_engine_metrics_can_be_parsed(stage: Stage) -> None:
    engine = stage.begin()
    assert parse_metrics("engine_0", stage.adapter.metrics(engine)).running == 0


@pytest.mark.heavy
def test_running_and_queued_requests_are_counted(stage: Stage) -> None:
    engine = stage.begin()
    assert stage.adapter.unfinished_requests(engine) == 0
    answered = stage.work(engine, 3)
    assert stage.adapter.unfinished_requests(engine) == 3
    assert answered() == [True] * 3
    assert stage.adapter.unfinished_requests(engine) == 0


def test_running_requests_are_aborted_where_supported(stage: Stage) -> None:
    engine = stage.begin()
    answered = stage.work(engine, 3)
    if stage.adapter.kind == "openai":
        assert error_kind(lambda: stage.adapter.abort(engine)) is ErrorKind.UNSUPPORTED
        assert answered() == [True] * 3
        return
    stage.adapter.abort(engine)
    assert answered() == [False] * 3


def test_engine_kind_without_weight_sync_raises_an_error(stage_without_weight_sync: Stage) -> None:
    one, other = stage_without_weight_sync.begin(), stage_without_weight_sync.begin()
    adapter = stage_without_weight_sync.adapter
    calls: list[Callable[[], object]] = [
        lambda: adapter.copy_weights(one, other, group="g", seconds=60.0),
        lambda: adapter.set_weight_version(one, "2"),
        lambda: adapter.pause(one), lambda: adapter.resume(one), lambda: adapter.flush(one),
    ]  # fmt: skip
    assert {error_kind(call) for call in calls} == {ErrorKind.UNSUPPORTED}


def test_error_names_the_unsupported_operation() -> None:
    adapter = engine_adapter("openai", HTTP_CLIENT)
    for operation, call in (("pause", adapter.pause), ("resume", adapter.resume)):
        with pytest.raises(ServingError, match=f"engines of this kind cannot {operation}$"):
            call("http://127.0.0.1:9")


@pytest.mark.shows("RLX-29")
def test_weights_are_copied_between_inference_engines(stage_with_weight_sync: Stage) -> None:
    seed, added = stage_with_weight_sync.begin(weights="7"), stage_with_weight_sync.begin(weights="1")
    stage_with_weight_sync.adapter.copy_weights(seed, added, group="copy-1", seconds=60.0)
    assert (stage_with_weight_sync.held(seed), stage_with_weight_sync.held(added)) == ("7", "7")
    assert stage_with_weight_sync.adapter.weight_version(added) == "1"
    stage_with_weight_sync.adapter.set_weight_version(added, "7")
    assert (
        stage_with_weight_sync.adapter.weight_version(added)
        == stage_with_weight_sync.adapter.identity(added).weight_version
        == "7"
    )


def test_weight_copy_to_a_stopped_engine_fails_without_side_effects(stage_with_weight_sync: Stage) -> None:
    seed, added = stage_with_weight_sync.begin(weights="7"), stage_with_weight_sync.begin()
    stage_with_weight_sync.end(added)
    call = lambda: stage_with_weight_sync.adapter.copy_weights(seed, added, group="copy-1", seconds=60.0)  # noqa: E731
    assert error_kind(call) is ErrorKind.UNREACHABLE
    assert stage_with_weight_sync.held(seed) == "7"


def test_setting_a_weight_version_does_not_interrupt_requests(stage_with_weight_sync: Stage) -> None:
    engine = stage_with_weight_sync.begin()
    answered = stage_with_weight_sync.work(engine, 2)
    stage_with_weight_sync.adapter.set_weight_version(engine, "2")
    assert answered() == [True, True]


def test_paused_engine_resumes_its_requests(stage_with_weight_sync: Stage) -> None:
    engine = stage_with_weight_sync.begin()
    answered = stage_with_weight_sync.work(engine, 3)
    stage_with_weight_sync.adapter.pause(engine)
    stage_with_weight_sync.adapter.pause(engine)
    assert stage_with_weight_sync.adapter.unfinished_requests(engine) == 3
    stage_with_weight_sync.adapter.flush(engine)
    stage_with_weight_sync.adapter.resume(engine)
    stage_with_weight_sync.adapter.resume(engine)
    assert answered() == [True] * 3


def test_cache_of_a_busy_engine_is_not_flushed(stage_with_weight_sync: Stage) -> None:
    engine = stage_with_weight_sync.begin()
    answered = stage_with_weight_sync.work(engine, 2)
    assert error_kind(lambda: stage_with_weight_sync.adapter.flush(engine)) is ErrorKind.REJECTED
    answered()
    stage_with_weight_sync.adapter.flush(engine)


# --- SGLang's own protocol only


def sglang(start: Starts, **model: int) -> tuple[EngineAdapter, Server]:
    return engine_adapter("sglang", HTTP_CLIENT), start(**model)


def test_older_servers_are_queried_through_their_older_endpoints(start: Starts) -> None:
    adapter, server = sglang(start)
    for page in ("/server_info", "/model_info", "/v1/loads"):
        server.engine.faults[page] = Fault(status=404)
    assert adapter.identity(server.address).weight_version == "1"
    assert adapter.unfinished_requests(server.address) == 0
    assert {"/get_server_info", "/get_model_info", "/metrics"} <= {path for path, _ in server.engine.received}


@pytest.mark.parametrize("body", ['{"tp_size": 1}', '{"served_model_name": "m", "tp_size": "many"}',
                                  '{"served_model_name": "m", "tp_size": 0}', "[]", "", "null"])  # fmt: skip
def test_invalid_identity_response_is_reported_as_unreadable(start: Starts, body: str) -> None:
    adapter, server = sglang(start)
    server.engine.faults["/server_info"] = Fault(body=body)
    assert error_kind(lambda: adapter.identity(server.address)) is ErrorKind.UNREADABLE


@pytest.mark.parametrize("body", ['{"loads": 3}', '{"loads": [4]}', '{"loads": null}'])
def test_invalid_load_response_is_reported_as_unreadable(start: Starts, body: str) -> None:
    adapter, server = sglang(start)
    server.engine.faults["/v1/loads"] = Fault(body=body)
    assert error_kind(lambda: adapter.unfinished_requests(server.address)) is ErrorKind.UNREADABLE


def test_running_requests_are_unknown_without_a_valid_count(start: Starts) -> None:
    adapter, server = sglang(start)
    server.engine.faults["/v1/loads"] = Fault(body='{"loads": [{"num_running_reqs": -1}]}')
    assert adapter.unfinished_requests(server.address) is None


def test_weights_are_not_copied_between_engines_with_different_rank_counts(start: Starts) -> None:
    adapter, seed = sglang(start)
    added = start(ranks=2)
    call = lambda: adapter.copy_weights(seed.address, added.address, group="g", seconds=60.0)  # noqa: E731
    assert error_kind(call) is ErrorKind.REJECTED
    assert not [path for path, _ in seed.engine.received if path.startswith("/init")]


def test_failure_reported_with_http_status_200_is_detected(start: Starts) -> None:
    adapter, server = sglang(start)
    server.engine.faults["/update_weight_version"] = Fault(body='{"success": false, "message": "no room"}')
    with pytest.raises(ServingError, match="no room"):
        adapter.set_weight_version(server.address, "2")


@pytest.mark.shows("RLX-34")
def test_weight_copy_that_fails_on_one_side_does_not_wait_for_the_other_side(start: Starts) -> None:
    adapter, seed = sglang(start)
    added = start()
    added.engine.faults["/init_weights_send_group_for_remote_instance"] = Fault(hang_up=True)
    added.engine.weights.join = lambda *_: None  # type: ignore[method-assign]
    seed.engine.weights.join = lambda *_: threading.Event().wait()  # type: ignore[assignment,method-assign]
    call = lambda: adapter.copy_weights(seed.address, added.address, group="g", seconds=3600.0)  # noqa: E731
    assert error_kind(call) is ErrorKind.UNREADABLE
    assert all(thread.daemon for thread in threading.enumerate() if thread.name.startswith("weights"))
