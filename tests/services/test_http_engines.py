"""Tests for weights and external engines over HTTP, with a real sglang-router."""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from berth.db.loops.lease import fenced_transaction
from pools.runtimes.rendezvous import PortAllocator
from projects.elastic import serving_clients
from projects.elastic.reconcile_context import ReconcileContext
from projects.elastic.serving_clients import ServingClients
from projects.models import InferenceEngine, ScaleRequest, Service
from projects.serving.addresses import THIS_MACHINE
from projects.serving.http_client import HttpClient
from projects.serving.routers import SGLangRouter
from tests.services.stage import ServiceStage, make_stage
from tests.serving.engine.model import Model
from tests.serving.engine.server import Fault, Server, SimulatedEngine, serving
from tests.serving.engine.weights import Weights
from tests.serving.routers import HTTP_CLIENT, sglang_router
from tests.support.ports import free_port

pytestmark = pytest.mark.django_db(transaction=True)
FROM_DISK = b"as they are on disk"


@dataclass
class HttpStage(ServiceStage):
    """A stage on which every running service pod has an engine that responds over HTTP."""

    router_address: str = ""
    folder: Path = Path()
    stack: ExitStack = field(default_factory=ExitStack)
    servers: dict[str, Server] = field(default_factory=dict)

    @property
    def reconcile_context(self) -> ReconcileContext:
        calls = ServingClients(networks=THIS_MACHINE, own_ports=frozenset(), routers=self.folder)
        return calls.reconcile_context(lambda: fenced_transaction(self.held))

    def sync_engines(self) -> None:
        for address in set(self.addresses()) - set(self.servers):
            self.start_engine(int(address.rpartition(":")[2]))

    def start_engine(self, port: int = 0, model: str = "default") -> Server:
        engine = SimulatedEngine(Model(model), Weights(FROM_DISK, "1"))
        server = self.stack.enter_context(serving(engine, port))
        self.servers[server.address] = server
        return server

    def chat(self, **service: Any) -> Service:
        router = {"kind": "sglang", "url": self.router_address}
        return self.serve(router=router, weight_sync=True, **service)

    def train(self, engine: InferenceEngine, version: str) -> bytes:
        """Write new weights and make the engine load them, as a trainer does."""
        weights = f"trained {version} times".encode() * 1000
        file = self.folder / f"weights-{version}"
        file.write_bytes(weights)
        body = {"model_path": str(file), "weight_version": version}
        assert HTTP_CLIENT.post(engine.url, "/update_weights_from_disk", body).is_success
        return weights

    def engine_weights(self, engine: InferenceEngine) -> tuple[bytes, str | None]:
        weights = self.servers[engine.url].engine.weights
        return weights.held, weights.version

    def registered_urls(self) -> set[str]:
        return {worker.address for worker in SGLangRouter(HTTP_CLIENT, self.router_address).workers()}

    def requested_paths(self, engine: InferenceEngine) -> list[str]:
        return [path for path, _ in self.servers[engine.url].engine.received]


@pytest.fixture(scope="module")
def router(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with sglang_router(tmp_path_factory.mktemp("router") / "log") as address:
        yield address


@pytest.fixture
def http_stage(
    transactional_db: None, router: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[HttpStage]:
    made = make_stage()
    # Engines listen on the ports of their pods, which other tests may use at the same time.
    monkeypatch.setattr(made.stage.runtime, "rendezvous", PortAllocator().allocate)
    monkeypatch.setattr(
        serving_clients, "HttpClient", partial(HttpClient, seconds=60.0)
    )  # a busy machine answers late
    with ExitStack() as stack:
        yield HttpStage(made.stage, router_address=router, folder=tmp_path, stack=stack)
        client = SGLangRouter(HTTP_CLIENT, router)
        for worker in client.workers():
            client.unregister(worker.address)


def finish_request(http_stage: HttpStage, request: ScaleRequest) -> ScaleRequest:
    return http_stage.finish(request, seconds=2)


@pytest.mark.heavy
@pytest.mark.shows("RLX-02", "RLX-29", "RLX-31", "RLX-32")
def test_added_engine_receives_the_weight_updates_of_the_initial_engine(http_stage: HttpStage) -> None:
    service = http_stage.chat()
    (initial,) = http_stage.live(service)
    seventh = http_stage.train(initial, "7")
    assert finish_request(http_stage, http_stage.scale_out(service, num_replicas=2)).weight_version == "7"
    added = http_stage.live(service)[1]
    assert http_stage.engine_weights(added) == (seventh, "7")
    assert http_stage.registered_urls() == {initial.url, added.url}
    eighth = http_stage.train(initial, "8")
    http_stage.until(lambda: http_stage.engine_weights(added)[1] == "8", seconds=10)
    assert http_stage.engine_weights(added) == http_stage.engine_weights(initial) == (eighth, "8")
    assert "/pause_generation" not in http_stage.requested_paths(initial)


@pytest.mark.heavy
@pytest.mark.shows("RLX-31", "RLX-37")
def test_strict_consistency_routes_no_requests_to_engines_with_old_weights(http_stage: HttpStage) -> None:
    service = http_stage.chat(weight_consistency="strict")
    (initial,) = http_stage.live(service)
    http_stage.train(initial, "7")
    finish_request(http_stage, http_stage.scale_out(service, num_replicas=2))
    added = http_stage.live(service)[1]
    assert http_stage.registered_urls() == {initial.url, added.url}
    http_stage.servers[added.url].engine.faults["/send_weights_to_remote_instance"] = Fault(status=500)
    http_stage.train(initial, "8")
    http_stage.until(lambda: http_stage.registered_urls() == {initial.url}, seconds=10)
    assert http_stage.engine_weights(added)[1] == "7"
    http_stage.servers[added.url].engine.faults.clear()
    http_stage.until(lambda: http_stage.registered_urls() == {initial.url, added.url}, seconds=10)
    assert http_stage.engine_weights(added) == http_stage.engine_weights(initial)


@pytest.mark.heavy
@pytest.mark.shows("RLX-04")
def test_external_engines_are_accepted_only_if_they_match_the_service(http_stage: HttpStage) -> None:
    service = http_stage.chat(scale_out_partial_success_policy="keep_partial")
    (initial,) = http_stage.live(service)
    good, other_model, malformed = (
        http_stage.start_engine(),
        http_stage.start_engine(model="another"),
        http_stage.start_engine(),
    )
    malformed.engine.faults["/server_info"] = Fault(body='{"served_model_name": "default", "tp_size": "all"}')
    urls = [good.address, other_model.address, malformed.address, "http://169.254.169.254"]
    request = finish_request(http_stage, http_stage.scale_out(service, urls=tuple(urls)))
    assert request.status == "PARTIAL"
    assert http_stage.registered_urls() == {initial.url, good.address}
    failed = {
        engine.url: engine.message
        for engine in InferenceEngine.objects.filter(service=service, state="FAILED")
    }
    assert set(failed) == set(urls[1:])
    assert "differs from the initial engines in: model" in failed[other_model.address]
    assert "an invalid number of ranks" in failed[malformed.address]
    assert "never allowed" in failed["http://169.254.169.254"]
    assert good.engine.weights.held == http_stage.engine_weights(initial)[0]


@pytest.mark.heavy
def test_restarted_router_gets_all_active_engines(transactional_db: None, tmp_path: Path) -> None:
    made, port = make_stage(), free_port()
    with ExitStack() as stack:
        http_stage = HttpStage(
            made.stage, router_address=f"http://127.0.0.1:{port}", folder=tmp_path, stack=stack
        )
        with sglang_router(tmp_path / "log", port=port):
            service = http_stage.chat()
            finish_request(http_stage, http_stage.scale_out(service, num_replicas=2))
            assert len(http_stage.registered_urls()) == 2
        http_stage.tick(times=3, seconds=10)
        assert http_stage.states(service) == ["ACTIVE", "ACTIVE"]
        with sglang_router(tmp_path / "log", port=port):
            assert http_stage.registered_urls() == set()
            http_stage.until(lambda: len(http_stage.registered_urls()) == 2, seconds=10)
            assert http_stage.registered_urls() == {engine.url for engine in http_stage.live(service)}


@pytest.mark.heavy
@pytest.mark.shows("RLX-64")
def test_autoscaler_reads_engine_metrics_over_http(http_stage: HttpStage) -> None:
    at_once = {"condition_duration_secs": 0, "queue_depth_per_engine": 1}
    service = http_stage.chat(autoscaler={"enabled": True, "max_engines": 2, "scale_out_policy": at_once})
    (initial,) = http_stage.live(service)
    model = http_stage.servers[initial.url].engine.model
    model.paused, model.queued = True, 3  # three requests that stay queued
    http_stage.until(lambda: len(http_stage.live(service)) == 2, seconds=10)
    (scaling,) = service.scalings.all()
    assert scaling.reason == "Conditions met: queue_backlog"
    assert scaling.metrics_snapshot["total_queue_reqs"] == 3
