"""Tests for scale-out: statuses, failures and cancellation."""

import pytest

from projects.models import InferenceEngine, Phase
from tests.services.stage import ServiceStage

ALL_STATUSES = ["PENDING", "CREATING", "HEALTH_CHECKING", "WEIGHT_SYNCING", "READY", "ACTIVE"]


@pytest.mark.shows("RLX-03", "RLX-05", "RLX-11", "RLX-14", "RLX-19", "RLX-31")
def test_scale_out_passes_through_every_status_until_its_engines_serve(stage: ServiceStage) -> None:
    service = stage.serve(engines=2)
    request = stage.scale_out(service, num_replicas=4)
    assert (request.status, stage.states(service)) == ("PENDING", ["ACTIVE"] * 2)
    request = stage.finish(request)
    assert (request.status, stage.statuses(request)) == ("ACTIVE", ALL_STATUSES)
    assert stage.states(service) == ["ACTIVE"] * 4
    assert stage.routed_urls() == sorted(engine.url for engine in stage.live(service))
    assert [child.phase for child in stage.children()] == ["running", "running"]
    stage.assert_no_orphans()


@pytest.mark.heavy
@pytest.mark.shows("RLX-12", "RLX-18", "RLX-38", "RLX-40")
def test_scale_out_is_rolled_back_if_its_engines_stay_pending_until_the_timeout(stage: ServiceStage) -> None:
    service = stage.serve(engines=7, scale_out_timeout=60)
    request = stage.scale_out(service, num_replicas=9)
    stage.tick(5)
    [waiting] = [child for child in stage.children() if child.phase == Phase.PENDING]
    assert (stage.reload(request).status, waiting.reason) == ("CREATING", "WouldExceedFairShare")
    request = stage.finish(request, seconds=5)
    assert (request.status, request.failure) == ("FAILED", "provision")
    assert "Timed out: engine_8 is still CREATING" in request.error_message
    assert stage.states(service) == ["ACTIVE"] * 7 + ["REMOVED"] * 2
    assert {child.phase for child in stage.children()} == {"cancelled"}
    stage.assert_no_orphans()


@pytest.mark.heavy
@pytest.mark.shows("RLX-39")
def test_partial_scale_out_keeps_the_active_engines(stage: ServiceStage) -> None:
    service = stage.serve(engines=7, scale_out_timeout=60, scale_out_partial_success_policy="keep_partial")
    request = stage.finish(stage.scale_out(service, num_replicas=9), seconds=5)
    assert request.status == "PARTIAL"
    assert [one["engine_id"] for one in request.failed_engines] == ["engine_8"]
    assert stage.states(service) == ["ACTIVE"] * 8 + ["FAILED"]
    stage.assert_no_orphans()


@pytest.mark.heavy
@pytest.mark.shows("RLX-12", "RLX-38")
def test_scale_request_fails_if_an_engine_exits_while_starting(stage: ServiceStage) -> None:
    service = stage.serve()
    stage.answers = False
    request = stage.scale_out(service, num_replicas=3)
    stage.until(lambda: stage.reload(request).status == "HEALTH_CHECKING")
    child = stage.children()[0]
    stage.stage.finish(child, exit_code=3)
    request = stage.finish(request)
    assert (request.status, request.failure) == ("FAILED", "init")
    assert "exit code 3" in request.error_message
    assert sorted(stage.states(service)) == ["ACTIVE", "FAILED", "REMOVED"]
    stage.assert_no_orphans()


@pytest.mark.heavy
@pytest.mark.shows("RLX-12")
def test_scale_out_fails_if_an_engine_stays_unhealthy_or_the_router_rejects_it(stage: ServiceStage) -> None:
    service = stage.serve(scale_out_timeout=30)
    stage.answers = False
    request = stage.finish(stage.scale_out(service, num_replicas=2), seconds=5)
    assert (request.status, request.failure) == ("FAILED", "health")
    stage.answers = True
    stage.reject_registrations()
    request = stage.finish(stage.scale_out(service, num_replicas=2), seconds=5)
    assert (request.status, request.failure) == ("FAILED", "router")


CANCELLED_IN = [
    pytest.param("PENDING", marks=pytest.mark.heavy),
    "CREATING",
    pytest.param("HEALTH_CHECKING", marks=pytest.mark.heavy),
    pytest.param("WEIGHT_SYNCING", marks=pytest.mark.heavy),
    "READY",
]


@pytest.mark.shows("RLX-08", "RLX-13", "RLX-23")
@pytest.mark.parametrize("status", CANCELLED_IN)
def test_scale_out_can_be_cancelled_in_every_status_before_active(stage: ServiceStage, status: str) -> None:
    service = stage.serve()
    request = stage.scale_out(service, num_replicas=3)
    stage.until(lambda: stage.reload(request).status == status)
    stage.cancel(request)
    request = stage.finish(request)
    assert request.status == "CANCELLED"
    assert "Cancelled by dave" in request.error_message
    assert [state for state in stage.states(service) if state != "REMOVED"] == ["ACTIVE"]
    assert len(stage.routed_urls()) == 1
    assert not [child for child in stage.children() if child.phase != "cancelled"]
    stage.tick(5)
    assert stage.reload(request).status == "CANCELLED"
    stage.assert_no_orphans()


@pytest.mark.heavy
def test_engine_that_loses_its_node_restarts_and_receives_requests_again(
    stage: ServiceStage,
) -> None:
    service = stage.serve()
    stage.finish(stage.scale_out(service, num_replicas=2))
    before = InferenceEngine.objects.get(service=service, number=1).url
    stage.lose(stage.children()[0])
    stage.until(lambda: stage.states(service) == ["ACTIVE", "CREATING"])
    stage.until(lambda: stage.states(service) == ["ACTIVE", "ACTIVE"], max_ticks=200)
    after = InferenceEngine.objects.get(service=service, number=1).url
    assert before != after
    assert stage.routed_urls() == sorted(engine.url for engine in stage.live(service))
    stage.assert_no_orphans()


def test_restarted_router_gets_all_healthy_engines_again(
    stage: ServiceStage,
) -> None:
    service = stage.serve(engines=2)
    for engine in stage.live(service):
        stage.router.forget(engine.url)
    stage.tick(4, seconds=3)
    assert stage.routed_urls() == sorted(engine.url for engine in stage.live(service))
    unhealthy = stage.live(service)[0].url
    stage.engines.make_unhealthy(unhealthy)
    stage.tick(5, seconds=6)
    assert unhealthy not in stage.routed_urls()
    stage.engines.appear(unhealthy)
    stage.tick(3, seconds=6)
    assert unhealthy in stage.routed_urls()
