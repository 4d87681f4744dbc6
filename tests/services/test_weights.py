"""Tests for weight synchronization: added engines copy the weights of an initial engine."""

import pytest

from projects.models import InferenceEngine, Service
from tests.api.conftest import Caller
from tests.fakes.serving import Fail
from tests.services.stage import ServiceStage


def versions(stage: ServiceStage, service: Service) -> list[str]:
    return [stage.engines.engines[engine.url].weights for engine in stage.live(service)]


@pytest.mark.shows("RLX-29", "RLX-31")
def test_added_engine_is_registered_and_receives_the_weights(stage: ServiceStage) -> None:
    service = stage.serve(weight_sync=True)
    stage.engines.hold(stage.live(service)[0].url, "7")
    request = stage.finish(stage.scale_out(service, num_replicas=2))
    assert (request.status, request.weight_version) == ("ACTIVE", "7")
    assert versions(stage, service) == ["7", "7"]
    added = stage.live(service)[1].url
    calls = [*stage.router.calls, *stage.engines.calls]
    assert ("register", added) in calls
    assert ("copy_weights", added) in calls


@pytest.mark.heavy
@pytest.mark.shows("RLX-31", "RLX-37")
def test_strict_consistency_registers_engines_only_after_the_weight_copy(stage: ServiceStage) -> None:
    service = stage.serve(weight_sync=True, weight_consistency="strict")
    stage.engines.always("copy_weights", Fail(message="no"))
    request = stage.finish(stage.scale_out(service, num_replicas=2))
    assert (request.status, request.failure) == ("FAILED", "weight_sync")
    assert len([call for call in stage.router.calls if call[0] == "register"]) == 1
    stage.assert_no_orphans()


@pytest.mark.shows("RLX-33", "RLX-34")
@pytest.mark.parametrize("failure", ["no version", pytest.param("copy", marks=pytest.mark.heavy)])
def test_eventual_consistency_routes_to_engines_with_old_weights(stage: ServiceStage, failure: str) -> None:
    service = stage.serve(weight_sync=True)
    if failure == "copy":
        stage.engines.always("copy_weights", Fail(message="no"))
    else:
        stage.engines.always("weight_version", Fail(message="I have none"))
    request = stage.finish(stage.scale_out(service, num_replicas=2))
    assert request.status == "ACTIVE"
    added = InferenceEngine.objects.get(service=service, number=1)
    assert (added.sync, added.sync_message != "") == ("failed", True)
    assert len(stage.routed_urls()) == 2


@pytest.mark.shows("RLX-30", "RLX-32", "RLX-35")
def test_added_engines_resume_after_a_crash_during_the_weight_copy(stage: ServiceStage, dave: Caller) -> None:
    service = stage.serve(weight_sync=True)
    stage.finish(stage.scale_out(service, num_replicas=3))
    initial = stage.live(service)[0].url
    dave.post("services/chat/weights", {"updating": True})
    stage.engines.hold(initial, "2")
    stage.tick(4, seconds=6)
    assert versions(stage, service) == ["2", "1", "1"], "nothing is copied while weights change"
    dave.post("services/chat/weights", {"updating": False})
    stage.tick(6, seconds=6)
    assert versions(stage, service) == ["2", "2", "2"]
    assert not [call for call in stage.engines.calls if call == ("copy_weights", initial)]
    assert not [call for call in stage.engines.calls if call == ("pause", initial)]

    added = stage.live(service)[1]  # left paused by a process that crashed while it copied
    stage.engines.pause(added.url)
    InferenceEngine.objects.filter(pk=added.pk).update(sync="copying")
    stage.tick(2)
    assert not stage.engines.engines[added.url].paused


@pytest.mark.shows("RLX-37")
def test_strict_consistency_stops_routing_to_engines_with_old_weights(stage: ServiceStage) -> None:
    service = stage.serve(weight_sync=True, weight_consistency="strict")
    stage.finish(stage.scale_out(service, num_replicas=2))
    initial, added = (engine.url for engine in stage.live(service))
    stage.engines.always("copy_weights", Fail(message="not yet"))
    stage.engines.hold(initial, "2")
    stage.tick(4, seconds=6)
    assert stage.routed_urls() == [initial]
    stage.engines.always("copy_weights", None)
    stage.tick(8, seconds=6)
    assert stage.routed_urls() == sorted([initial, added])
    assert versions(stage, service) == ["2", "2"]


@pytest.mark.shows("RLX-36")
def test_weight_update_returns_409_while_weights_are_copied(stage: ServiceStage, dave: Caller) -> None:
    service = stage.serve(weight_sync=True)
    Service.objects.filter(pk=service.pk).update(syncing_since=stage.stage.clock.now())
    assert dave.post("services/chat/weights", {"updating": True}).status_code == 409
