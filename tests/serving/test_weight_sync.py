"""Tests for copying weights to an added engine over HTTP: copies are complete, and no request is lost."""

import threading
import time
import uuid
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from projects.serving.base import ErrorKind, ServingError
from projects.serving.engines import engine_adapter
from projects.serving.http_client import HttpClient
from projects.serving.weight_sync import copy_weights
from tests.fakes.serving import Fail, FakeEngine, FakeEngines
from tests.serving.conftest import HERE, Starts
from tests.serving.engine.server import Fault, Server
from tests.serving.engine.weights import Weights

HTTP_CLIENT = HttpClient(HERE, seconds=60.0)
ADAPTER = engine_adapter("sglang", HTTP_CLIENT)
POOL = ThreadPoolExecutor(8)
JOIN, SEND = "/init_weights_send_group_for_remote_instance", "/send_weights_to_remote_instance"


@pytest.fixture
def pair(start: Starts, tmp_path: Path) -> tuple[Server, Server]:
    """Return an engine with version 7 of a trainer's weights, and an added engine with weights from disk."""
    seed, added = start(slots=4), start(slots=4, weights=Weights(b"from disk", "1"))
    trained = tmp_path / "weights-7"
    trained.write_bytes(b"trained" * 10_000)
    update = {"model_path": str(trained), "weight_version": "7"}
    assert HTTP_CLIENT.post(seed.address, "/update_weights_from_disk", update).json()["success"]
    return seed, added


def copy_weights_to(seed: Server, added: Server, seconds: float = 60.0) -> str:
    """Copy the weights in a separate group, because the two engines find each other by the group's name."""
    return copy_weights(ADAPTER, seed.address, added.address, group=f"berth-{uuid.uuid4()}", seconds=seconds)


def held_requests(server: Server, count: int) -> list[Future[Any]]:
    """Start requests that the engine does not complete until `is_held` is reset."""
    server.engine.model.is_held = True
    body = {"sampling_params": {"max_new_tokens": 20}}
    futures = [
        POOL.submit(HTTP_CLIENT.post, server.address, "/generate", body, seconds=120.0) for _ in range(count)
    ]
    until = time.monotonic() + 60
    while server.engine.model.running < min(count, server.engine.model.slots):
        assert time.monotonic() < until
        time.sleep(0.005)
    return futures


@pytest.mark.shows("RLX-29")
def test_added_engine_receives_and_reports_the_seeds_weights(pair: tuple[Server, Server]) -> None:
    seed, added = pair
    assert added.engine.weights.digest != seed.engine.weights.digest
    assert copy_weights_to(seed, added) == "7"
    assert added.engine.weights.digest == seed.engine.weights.digest
    assert ADAPTER.identity(added.address).weight_version == "7"
    assert added.engine.model.flushed == 1
    assert not added.engine.model.paused


@pytest.mark.shows("RLX-29", "RLX-35")
def test_no_request_is_lost_during_a_weight_copy(pair: tuple[Server, Server]) -> None:
    seed, added = pair
    futures = held_requests(seed, 4) + held_requests(added, 6)
    copy_weights_to(seed, added)
    seed.engine.model.is_held = added.engine.model.is_held = False
    assert [future.result().is_success for future in futures] == [True] * 10
    assert added.engine.model.served == 6
    assert not [path for path, _ in seed.engine.received if path in {"/pause_generation", "/flush_cache"}]


def test_engine_generates_no_response_during_a_weight_update(pair: tuple[Server, Server]) -> None:
    seed, added = pair
    transfer, begun, go_on = seed.engine.weights.transfer, threading.Event(), threading.Event()

    def wait_and_transfer(name: str) -> None:
        begun.set()
        assert go_on.wait(60)
        transfer(name)

    seed.engine.weights.transfer = wait_and_transfer  # type: ignore[method-assign]
    futures = held_requests(added, 2)
    copying = POOL.submit(copy_weights_to, seed, added)
    assert begun.wait(60)
    added.engine.model.is_held = False
    time.sleep(0.3)
    assert added.engine.model.served == 0
    go_on.set()
    assert copying.result() == "7"
    assert all(future.result().json()["meta_info"]["weight_version"] == "7" for future in futures)


@pytest.mark.shows("RLX-33")
def test_engine_without_a_weight_version_cannot_be_a_seed(pair: tuple[Server, Server]) -> None:
    seed, added = pair
    seed.engine.weights.version = None
    with pytest.raises(ServingError, match="reports no weight version"):
        copy_weights_to(seed, added)
    assert (added.engine.weights.held, added.engine.weights.version) == (b"from disk", "1")


@pytest.mark.shows("RLX-33", "RLX-34")
@pytest.mark.parametrize("step", [JOIN, SEND, "/flush_cache", "/update_weight_version"])
@pytest.mark.parametrize("side", ["seed", "added"])
@pytest.mark.parametrize("fault", [Fault(status=500), Fault(hang_up=True), Fault(body='{"success": false}')])
def test_engine_resumes_without_a_version_after_a_failed_weight_copy(
    pair: tuple[Server, Server], step: str, side: str, fault: Fault
) -> None:
    seed, added = pair
    if side == "seed" and step not in {JOIN, SEND}:
        step = JOIN
    if step == "/flush_cache" and fault.body:
        fault = Fault(status=400)
    (seed if side == "seed" else added).engine.faults[step] = fault
    with pytest.raises(ServingError):
        copy_weights_to(seed, added)
    if step != "/update_weight_version":  # only the response is broken; the copy is complete
        assert ADAPTER.weight_version(added.address) == "1"
    assert not added.engine.model.paused
    assert HTTP_CLIENT.post(added.address, "/generate", {"max_new_tokens": 2}).is_success
    assert ADAPTER.weight_version(seed.address) == "7"


@pytest.mark.heavy
@pytest.mark.shows("RLX-34")
def test_weight_copy_times_out_if_the_seed_is_missing(pair: tuple[Server, Server]) -> None:
    seed, added = pair
    seed.engine.faults[JOIN] = Fault(slow=3600.0)
    seed.engine.weights.join = lambda *_: None  # type: ignore[method-assign]
    with pytest.raises(ServingError):
        copy_weights_to(seed, added, seconds=2.0)
    assert not added.engine.model.paused


def test_weights_that_change_during_the_copy_are_not_assigned_a_version(pair: tuple[Server, Server]) -> None:
    seed, added = pair
    transfer = seed.engine.weights.transfer

    def train_during_the_copy(name: str) -> None:
        transfer(name)
        seed.engine.weights.version = "8"

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(seed.engine.weights, "transfer", train_during_the_copy)
        with pytest.raises(ServingError, match="from version 7 to 8"):
            copy_weights_to(seed, added)
    assert added.engine.weights.version == "1"
    assert copy_weights_to(seed, added) == "8"


def test_failed_weight_copy_can_be_repeated(pair: tuple[Server, Server]) -> None:
    seed, added = pair
    added.engine.faults[SEND] = Fault(status=500)
    with pytest.raises(ServingError):
        copy_weights_to(seed, added)
    added.engine.faults.clear()
    assert copy_weights_to(seed, added) == "7"
    assert added.engine.weights.digest == seed.engine.weights.digest


def fakes() -> FakeEngines:
    adapter = FakeEngines()
    adapter.appear("http://seed", FakeEngine(weights="7"))
    adapter.appear("http://added")
    adapter.hold("http://seed", "7")
    return adapter


def test_resume_is_retried_after_a_lost_response() -> None:
    adapter = fakes()
    adapter.next("resume", Fail(ErrorKind.TIMEOUT))
    assert copy_weights(adapter, "http://seed", "http://added", group="g", seconds=1.0) == "7"
    assert not adapter.engines["http://added"].paused


def test_failure_to_resume_an_engine_raises_an_error() -> None:
    adapter = fakes()
    adapter.always("resume", Fail(ErrorKind.TIMEOUT))
    with pytest.raises(ServingError):
        copy_weights(adapter, "http://seed", "http://added", group="g", seconds=1.0)


def test_only_the_first_error_of_a_weight_copy_is_reported() -> None:
    adapter = fakes()
    adapter.next("copy_weights", Fail(message="the connection broke"))
    adapter.always("resume", Fail(ErrorKind.TIMEOUT, "late"))
    with pytest.raises(ServingError, match="the connection broke"):
        copy_weights(adapter, "http://seed", "http://added", group="g", seconds=1.0)
