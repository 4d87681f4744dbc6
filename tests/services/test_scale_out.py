"""Scale-out step by step, all or nothing, with cancellation."""

import pytest

from projects.models import InferenceEngine, Phase
from tests.services.stage import ServiceStage

FULL_WAY = ["PENDING", "CREATING", "HEALTH_CHECKING", "WEIGHT_SYNCING", "READY", "ACTIVE"]


@pytest.mark.shows("RLX-03", "RLX-11", "RLX-14", "RLX-31")
def test_a_scale_out_enters_every_state_on_its_way_and_its_engines_serve(stage: ServiceStage) -> None:
    service = stage.serve(engines=2)
    request = stage.finish(stage.out(service, num_replicas=4))
    assert (request.status, stage.way(request)) == ("ACTIVE", FULL_WAY)
    assert stage.states(service) == ["ACTIVE"] * 4
    assert stage.routed() == sorted(engine.url for engine in stage.live(service))
    assert [child.phase for child in stage.children()] == ["running", "running"]
    stage.nothing_is_lost()


@pytest.mark.shows("RLX-05", "RLX-19")
def test_a_request_is_answered_before_anything_of_it_is_done(stage: ServiceStage) -> None:
    service = stage.serve()
    request = stage.out(service, num_replicas=2)
    assert (request.status, stage.states(service)) == ("PENDING", ["ACTIVE"])


def test_an_engine_waits_for_gpus_like_any_workload_and_its_request_says_so(stage: ServiceStage) -> None:
    service = stage.serve(engines=7)
    request = stage.out(service, num_replicas=10)
    stage.tick(5)
    waiting = [child for child in stage.children() if child.phase == Phase.PENDING]
    assert stage.fresh(request).status == "CREATING"
    assert len(waiting) == 2
    assert {child.reason for child in waiting} == {"OverFairShare"}


@pytest.mark.shows("RLX-12", "RLX-18", "RLX-38", "RLX-40")
def test_what_did_not_come_about_in_its_time_is_rolled_back_whole(stage: ServiceStage) -> None:
    service = stage.serve(engines=7, scale_out_timeout=60)
    request = stage.finish(stage.out(service, num_replicas=9), seconds=5)
    assert (request.status, request.failure) == ("FAILED", "provision")
    assert "Timed out: engine_8 is still CREATING" in request.error_message
    assert stage.states(service) == ["ACTIVE"] * 7 + ["REMOVED"] * 2
    assert {child.phase for child in stage.children()} == {"cancelled"}
    stage.nothing_is_lost()


@pytest.mark.shows("RLX-39")
def test_keep_partial_keeps_the_good_ones(stage: ServiceStage) -> None:
    service = stage.serve(engines=7, scale_out_timeout=60, scale_out_partial_success_policy="keep_partial")
    request = stage.finish(stage.out(service, num_replicas=9), seconds=5)
    assert request.status == "PARTIAL"
    assert [one["engine_id"] for one in request.failed_engines] == ["engine_8"]
    assert stage.states(service) == ["ACTIVE"] * 8 + ["FAILED"]
    stage.nothing_is_lost()


@pytest.mark.shows("RLX-12", "RLX-38")
def test_a_process_that_ends_while_it_starts_fails_the_whole_request(stage: ServiceStage) -> None:
    service = stage.serve()
    stage.answers = False
    request = stage.out(service, num_replicas=3)
    stage.until(lambda: stage.fresh(request).status == "HEALTH_CHECKING")
    child = stage.children()[0]
    stage.stage.finish(child, exit_code=3)
    request = stage.finish(request)
    assert (request.status, request.failure) == ("FAILED", "init")
    assert "exit code 3" in request.error_message
    assert sorted(stage.states(service)) == ["ACTIVE", "FAILED", "REMOVED"]
    stage.nothing_is_lost()


@pytest.mark.shows("RLX-12")
def test_an_engine_that_never_gets_well_fails_by_its_health(stage: ServiceStage) -> None:
    service = stage.serve(scale_out_timeout=30)
    stage.answers = False
    request = stage.finish(stage.out(service, num_replicas=2), seconds=5)
    assert (request.status, request.failure) == ("FAILED", "health")


@pytest.mark.shows("RLX-08", "RLX-13", "RLX-23")
@pytest.mark.parametrize("status", ["PENDING", "CREATING", "HEALTH_CHECKING", "WEIGHT_SYNCING", "READY"])
def test_a_scale_out_can_be_cancelled_in_every_state_before_it_is_active(
    stage: ServiceStage, status: str
) -> None:
    service = stage.serve()
    request = stage.out(service, num_replicas=3)
    stage.until(lambda: stage.fresh(request).status == status)
    stage.cancel(request)
    request = stage.finish(request)
    assert request.status == "CANCELLED"
    assert "Cancelled by dave" in request.error_message
    assert [state for state in stage.states(service) if state != "REMOVED"] == ["ACTIVE"]
    assert len(stage.routed()) == 1
    assert not [child for child in stage.children() if child.phase != "cancelled"]
    stage.tick(5)
    assert stage.fresh(request).status == "CANCELLED"
    stage.nothing_is_lost()


@pytest.mark.shows("RLX-12")
def test_a_router_that_refuses_an_engine_ends_the_request_by_name(stage: ServiceStage) -> None:
    service = stage.serve(scale_out_timeout=30)
    stage.refuse_registrations()
    request = stage.finish(stage.out(service, num_replicas=2), seconds=5)
    assert (request.status, request.failure) == ("FAILED", "router")


def test_an_engine_that_loses_its_place_comes_back_at_its_next_and_the_router_follows(
    stage: ServiceStage,
) -> None:
    service = stage.serve()
    stage.finish(stage.out(service, num_replicas=2))
    before = InferenceEngine.objects.get(service=service, number=1).url
    stage.lose(stage.children()[0])
    stage.until(lambda: stage.states(service) == ["ACTIVE", "CREATING"])
    stage.until(lambda: stage.states(service) == ["ACTIVE", "ACTIVE"], most=200)
    after = InferenceEngine.objects.get(service=service, number=1).url
    assert before != after
    assert stage.routed() == sorted(engine.url for engine in stage.live(service))
    stage.nothing_is_lost()


def test_a_router_that_was_started_anew_is_told_again(stage: ServiceStage) -> None:
    service = stage.serve(engines=2)
    for engine in stage.live(service):
        stage.router.forget(engine.url)
    stage.tick(4, seconds=3)
    assert stage.routed() == sorted(engine.url for engine in stage.live(service))


def test_a_sick_engine_gets_nothing_new_until_it_is_well(stage: ServiceStage) -> None:
    service = stage.serve(engines=2)
    sick = stage.live(service)[0].url
    stage.engines.fall_ill(sick)
    stage.tick(5, seconds=6)
    assert sick not in stage.routed()
    stage.engines.appear(sick)
    stage.tick(3, seconds=6)
    assert sick in stage.routed()
