"""The whole way of weights and of engines elsewhere, over HTTP: engines that answer, a real sglang-router."""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from berth.db.lease import fenced
from projects.elastic.ports import Ports
from projects.elastic.wires import Calls
from projects.models import InferenceEngine, ScaleRequest, Service
from projects.serving.addresses import THIS_MACHINE
from projects.serving.routers import SGLangRouter
from tests.services.stage import ServiceStage, make_stage
from tests.serving.engine.model import Model
from tests.serving.engine.server import Fault, Server, SimulatedEngine, serving
from tests.serving.engine.weights import Weights
from tests.serving.routers import WIRE, free_port, sglang_router

pytestmark = pytest.mark.django_db(transaction=True)
FROM_DISK = b"as they are on disk"


@dataclass
class HttpStage(ServiceStage):
    """Where a pod of a service runs, an engine really answers."""

    router_address: str = ""
    folder: Path = Path()
    stack: ExitStack = field(default_factory=ExitStack)
    servers: dict[str, Server] = field(default_factory=dict)

    @property
    def ports(self) -> Ports:
        calls = Calls(networks=THIS_MACHINE, own_ports=frozenset(), routers=self.folder)
        return calls.ports(lambda: fenced(self.held))

    def processes(self) -> None:
        for address in set(self.addresses()) - set(self.servers):
            self.begin(int(address.rpartition(":")[2]))

    def begin(self, port: int = 0, model: str = "default") -> Server:
        engine = SimulatedEngine(Model(model), Weights(FROM_DISK, "1"))
        server = self.stack.enter_context(serving(engine, port))
        self.servers[server.address] = server
        return server

    def chat(self, **service: Any) -> Service:
        router = {"kind": "sglang", "url": self.router_address}
        return self.serve(router=router, weight_sync=True, **service)

    def train(self, engine: InferenceEngine, version: str) -> bytes:
        """As a trainer does: it writes weights and has the engine load them."""
        weights = f"trained {version} times".encode() * 1000
        place = self.folder / f"weights-{version}"
        place.write_bytes(weights)
        asked = {"model_path": str(place), "weight_version": version}
        assert WIRE.post(engine.url, "/update_weights_from_disk", asked).is_success
        return weights

    def holds(self, engine: InferenceEngine) -> tuple[bytes, str | None]:
        weights = self.servers[engine.url].engine.weights
        return weights.held, weights.version

    def listed(self) -> set[str]:
        return {worker.address for worker in SGLangRouter(WIRE, self.router_address).workers()}

    def asked(self, engine: InferenceEngine) -> list[str]:
        return [path for path, _ in self.servers[engine.url].engine.asked]


@pytest.fixture(scope="module")
def router(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with sglang_router(tmp_path_factory.mktemp("router") / "log") as address:
        yield address


@pytest.fixture
def web(transactional_db: None, router: str, tmp_path: Path) -> Iterator[HttpStage]:
    made = make_stage()
    with ExitStack() as stack:
        yield HttpStage(made.stage, router_address=router, folder=tmp_path, stack=stack)
        client = SGLangRouter(WIRE, router)
        for worker in client.workers():
            client.unregister(worker.address)


def finished(web: HttpStage, request: ScaleRequest) -> ScaleRequest:
    return web.finish(request, seconds=2)


@pytest.mark.shows("RLX-02", "RLX-29", "RLX-31", "RLX-32")
def test_weights_follow_the_initial_engine_from_one_update_to_the_next(web: HttpStage) -> None:
    service = web.chat()
    (initial,) = web.live(service)
    seventh = web.train(initial, "7")
    assert finished(web, web.out(service, num_replicas=2)).weight_version == "7"
    added = web.live(service)[1]
    assert web.holds(added) == (seventh, "7")
    assert web.listed() == {initial.url, added.url}
    eighth = web.train(initial, "8")
    web.until(lambda: web.holds(added)[1] == "8", seconds=10)
    assert web.holds(added) == web.holds(initial) == (eighth, "8")
    assert "/pause_generation" not in web.asked(initial)


@pytest.mark.shows("RLX-31", "RLX-37")
def test_strict_lets_nobody_in_with_other_weights(web: HttpStage) -> None:
    service = web.chat(weight_consistency="strict")
    (initial,) = web.live(service)
    web.train(initial, "7")
    finished(web, web.out(service, num_replicas=2))
    added = web.live(service)[1]
    assert web.listed() == {initial.url, added.url}
    web.servers[added.url].engine.faults["/send_weights_to_remote_instance"] = Fault(status=500)
    web.train(initial, "8")
    web.until(lambda: web.listed() == {initial.url}, seconds=10)
    assert web.holds(added)[1] == "7"
    web.servers[added.url].engine.faults.clear()
    web.until(lambda: web.listed() == {initial.url, added.url}, seconds=10)
    assert web.holds(added) == web.holds(initial)


@pytest.mark.shows("RLX-04")
def test_engines_elsewhere_are_let_in_only_if_they_are_what_they_should_be(web: HttpStage) -> None:
    service = web.chat(scale_out_partial_success_policy="keep_partial")
    (initial,) = web.live(service)
    good, stranger, liar = web.begin(), web.begin(model="another"), web.begin()
    liar.engine.faults["/server_info"] = Fault(body='{"served_model_name": "default", "tp_size": "all"}')
    urls = [good.address, stranger.address, liar.address, "http://169.254.169.254"]
    request = finished(web, web.out(service, urls=tuple(urls)))
    assert request.status == "PARTIAL"
    assert web.listed() == {initial.url, good.address}
    failed = {
        engine.url: engine.message
        for engine in InferenceEngine.objects.filter(service=service, state="FAILED")
    }
    assert set(failed) == set(urls[1:])
    assert "differs from the initial engines in: model" in failed[stranger.address]
    assert "an invalid number of ranks" in failed[liar.address]
    assert "never allowed" in failed["http://169.254.169.254"]
    assert good.engine.weights.held == web.holds(initial)[0]


def test_a_router_that_was_away_is_told_of_everybody_who_serves_by_then(
    transactional_db: None, tmp_path: Path
) -> None:
    made, port = make_stage(), free_port()
    with ExitStack() as stack:
        web = HttpStage(made.stage, router_address=f"http://127.0.0.1:{port}", folder=tmp_path, stack=stack)
        with sglang_router(tmp_path / "log", port=port):
            service = web.chat()
            finished(web, web.out(service, num_replicas=2))
            assert len(web.listed()) == 2
        web.tick(times=3, seconds=10)
        assert web.states(service) == ["ACTIVE", "ACTIVE"]
        with sglang_router(tmp_path / "log", port=port):
            assert web.listed() == set()
            web.until(lambda: len(web.listed()) == 2, seconds=10)
            assert web.listed() == {engine.url for engine in web.live(service)}


@pytest.mark.shows("RLX-64")
def test_the_autoscaler_reads_what_the_engines_themselves_say(web: HttpStage) -> None:
    at_once = {"condition_duration_secs": 0, "queue_depth_per_engine": 1}
    service = web.chat(autoscaler={"enabled": True, "max_engines": 2, "scale_out_policy": at_once})
    (initial,) = web.live(service)
    model = web.servers[initial.url].engine.model
    model.paused, model.queued = True, 3  # three that nobody lets through
    web.until(lambda: len(web.live(service)) == 2, seconds=10)
    (scaling,) = service.scalings.all()
    assert scaling.reason == "Conditions met: queue_backlog"
    assert scaling.metrics_snapshot["total_queue_reqs"] == 3
