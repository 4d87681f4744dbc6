"""Tests for engines that die: their operations end soon, and the service history lists them."""

import socket
from collections.abc import Iterator
from contextlib import closing

import pytest
from django.test import Client

from projects.models import Event, InferenceEngine, Service
from projects.services.inference.rules import ScalingInProgress
from tests.api.conftest import Caller
from tests.cli.terminal import Terminal
from tests.services.stage import ServiceStage
from tests.services.test_http_engines import HttpStage, finish_request, http_stage, router
from tests.services.test_service_commands import InProcessServer, terminal

__all__ = ["http_stage", "router", "terminal"]

DEAD_ENGINE, LIVE_ENGINE = "http://198.51.100.9:30000", "http://198.51.100.10:30000"
SOON_TICKS = 15  # ticks of two seconds; the regular time limit is half an hour


@pytest.fixture
def closed_port() -> Iterator[str]:
    """Return an address that refuses connections. Its port is bound, but no process listens on it."""
    with closing(socket.socket()) as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{bound.getsockname()[1]}"


def failed_events(service: Service) -> list[Event]:
    return list(Event.objects.filter(workload_id=service.workload_id, kind="engine_failed"))


@pytest.mark.heavy
@pytest.mark.shows("RLX-12", "RLX-38")
def test_external_engine_fails_after_a_few_refused_connections(
    http_stage: HttpStage, closed_port: str
) -> None:
    service = http_stage.chat()
    request = http_stage.scale_out(service, urls=(closed_port,))
    http_stage.until(lambda: http_stage.reload(request).is_final, seconds=2, max_ticks=SOON_TICKS)
    request = http_stage.reload(request)
    assert (request.status, request.failure) == ("FAILED", "init")
    assert "Connection refused" in request.error_message
    assert "5 connection attempts failed" in request.error_message
    assert finish_request(http_stage, http_stage.scale_out(service, num_replicas=2)).status == "ACTIVE"


@pytest.mark.heavy
def test_unreachable_external_engine_blocks_other_operations_only_briefly(stage: ServiceStage) -> None:
    service = stage.serve()
    request = stage.scale_out(service, urls=(DEAD_ENGINE,))
    stage.tick()
    with pytest.raises(ScalingInProgress):
        stage.scale_out(service, num_replicas=3)
    stage.until(lambda: stage.reload(request).is_final, seconds=2, max_ticks=SOON_TICKS)
    assert stage.finish(stage.scale_out(service, num_replicas=3)).status == "ACTIVE"


@pytest.mark.shows("RLX-39")
def test_partial_scale_out_keeps_the_responsive_engine(stage: ServiceStage) -> None:
    service = stage.serve(scale_out_partial_success_policy="keep_partial")
    stage.engines.appear(LIVE_ENGINE)
    request = stage.scale_out(service, urls=(DEAD_ENGINE, LIVE_ENGINE))
    stage.until(lambda: stage.reload(request).is_final, seconds=2, max_ticks=SOON_TICKS)
    request = stage.reload(request)
    assert request.status == "PARTIAL"
    assert [one["url"] for one in request.failed_engines] == [DEAD_ENGINE]
    assert sorted(stage.states(service)) == ["ACTIVE", "ACTIVE", "FAILED"]


@pytest.mark.parametrize(
    "state", ["HEALTH_CHECKING", pytest.param("WEIGHT_SYNCING", marks=pytest.mark.heavy)]
)
def test_external_engine_that_crashes_after_connecting_fails_quickly(stage: ServiceStage, state: str) -> None:
    service = stage.serve()
    stage.engines.appear(LIVE_ENGINE)
    if state == "HEALTH_CHECKING":
        stage.engines.make_unhealthy(LIVE_ENGINE)
    else:
        stage.reject_registrations()
    request = stage.scale_out(service, urls=(LIVE_ENGINE,))
    stage.until(lambda: InferenceEngine.objects.filter(url=LIVE_ENGINE, state=state).exists())
    stage.engines.vanish(LIVE_ENGINE)
    stage.until(lambda: stage.reload(request).is_final, seconds=2, max_ticks=SOON_TICKS)
    assert (stage.reload(request).status, stage.reload(request).failure) == ("FAILED", "health")


@pytest.mark.heavy
def test_briefly_unreachable_external_engine_does_not_fail(stage: ServiceStage) -> None:
    service = stage.serve()
    request = stage.scale_out(service, urls=(LIVE_ENGINE,))
    stage.tick(5)
    assert stage.reload(request).status == "CONNECTING"
    stage.engines.appear(LIVE_ENGINE)
    assert stage.finish(request).status == "ACTIVE"


@pytest.mark.heavy
def test_engine_that_is_loading_its_model_does_not_fail(stage: ServiceStage) -> None:
    # The engine returns 503 for longer than Berth retries an unreachable engine.
    service = stage.serve()
    stage.engines.appear(LIVE_ENGINE)
    stage.engines.make_unhealthy(LIVE_ENGINE)
    request = stage.scale_out(service, urls=(LIVE_ENGINE,))
    stage.tick(12, seconds=5)
    assert stage.reload(request).status == "HEALTH_CHECKING"


def test_history_and_service_page_show_an_engine_that_crashes_without_a_restart_policy(
    stage: ServiceStage, dave: Caller, terminal: Terminal
) -> None:
    service = stage.serve()
    stage.finish(stage.scale_out(service, num_replicas=2))
    child = stage.children()[0]
    stage.stage.finish(child, exit_code=3)
    stage.until(lambda: stage.states(service) == ["ACTIVE", "FAILED"])
    (event,) = failed_events(service)
    assert "exit code 3" in event.message
    assert (event.data["engine"], event.data["failure"]) == ("engine_1", "init")

    (reported,) = dave.get(f"events?workload={service.workload_id}&kind=engine_failed").json()["items"]
    assert reported["message"] == event.message
    shown = terminal.run("service", "history", "vision/chat", server=InProcessServer(dave)).stdout
    assert "Failed inference engines" in shown
    assert "exit code 3" in " ".join(shown.split())
    listed = terminal.run(
        "service", "history", "vision/chat", "--failed-engines", server=InProcessServer(dave)
    )
    assert "exit code 3" in " ".join(listed.stdout.split())
    client = Client()
    client.force_login(stage.stage.cast.dave.user)
    page = client.get(f"/services/{service.workload_id}").content.decode()
    assert "exit code 3" in page.partition("Failed inference engines")[2]
