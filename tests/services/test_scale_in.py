"""Scale-in removes the newest engines first and drops no request."""

import pytest

from projects.models import InferenceEngine, ScaleRequest
from projects.services import workloads
from tests.api.conftest import Caller
from tests.fakes.serving import Fail
from tests.services.stage import ServiceStage

WAY = ["PENDING", "DRAINING", "REMOVING", "COMPLETED"]


def grown(stage: ServiceStage, to: int = 4, **service: object) -> object:
    found = stage.serve(engines=2, **service)
    stage.finish(stage.out(found, num_replicas=to))
    return found


@pytest.mark.shows("RLX-41", "RLX-43", "RLX-48", "RLX-56", "RLX-57")
def test_the_newest_go_first_and_everything_of_them_is_gone(stage: ServiceStage) -> None:
    service = grown(stage)
    request = stage.finish(stage.into(service, num_replicas=3))
    assert (request.status, stage.way(request)) == ("COMPLETED", WAY)
    assert stage.states(service) == ["ACTIVE", "ACTIVE", "ACTIVE", "REMOVED"]
    assert [child.phase for child in stage.children()] == ["running", "cancelled"]
    assert len(stage.routed()) == 3
    stage.tick(5, seconds=10)
    assert stage.states(service) == ["ACTIVE", "ACTIVE", "ACTIVE", "REMOVED"], "and nobody revives it"
    stage.nothing_is_lost()


@pytest.mark.shows("RLX-09", "RLX-50")
def test_an_engine_goes_once_it_has_answered_what_it_was_sent(stage: ServiceStage) -> None:
    service = grown(stage, 3)
    last = InferenceEngine.objects.get(service=service, number=2).url
    stage.engines.run(last, 5)
    request = stage.into(service, num_replicas=2)
    stage.tick(8)
    assert stage.fresh(request).status == "DRAINING"
    assert last not in stage.routed(), "but it is sent nothing new"
    stage.engines.run(last, 0)
    assert stage.finish(request).status == "COMPLETED"
    assert stage.engines.count("abort") == 0


@pytest.mark.shows("RLX-54")
def test_what_is_under_way_is_aborted_when_the_drain_timeout_is_over(stage: ServiceStage) -> None:
    service = grown(stage, 3, scale_in_drain_timeout=20)
    stage.engines.run(InferenceEngine.objects.get(service=service, number=2).url, 5)
    request = stage.into(service, num_replicas=2)
    stage.tick(10, seconds=1)
    assert stage.fresh(request).status == "DRAINING"
    assert stage.finish(request, seconds=4).status == "COMPLETED"
    assert stage.engines.count("abort") == 1


@pytest.mark.shows("RLX-45")
def test_force_does_not_wait_for_anything(stage: ServiceStage) -> None:
    service = grown(stage, 3)
    stage.engines.run(InferenceEngine.objects.get(service=service, number=2).url, 5)
    request = stage.finish(stage.into(service, num_replicas=2, force=True))
    assert (request.status, stage.way(request)) == ("COMPLETED", WAY)
    assert (request.ended_at - request.created_at).total_seconds() < 10  # type: ignore[operator]


@pytest.mark.shows("RLX-42", "RLX-46", "RLX-58")
def test_a_dry_run_names_who_would_go_and_changes_nothing(stage: ServiceStage, dave: Caller) -> None:
    service = grown(stage)
    asked = {"num_replicas": 2, "dry_run": True}
    said = dave.post("services/chat/scale_in", asked).json()
    assert (said["request_id"], said["status"]) == (None, "DRY_RUN")
    assert said["engine_ids"] == ["engine_3", "engine_2"]
    assert ScaleRequest.objects.filter(direction="scale_in").count() == 0
    assert stage.states(service) == ["ACTIVE"] * 4
    assert dave.post("services/chat/scale_in", {"num_replicas": 4}).json()["status"] == "NOOP"


@pytest.mark.shows("RLX-10", "RLX-44")
def test_exactly_those_named_go_but_never_an_initial_one(stage: ServiceStage, dave: Caller) -> None:
    service = grown(stage)
    first, third = (InferenceEngine.objects.get(service=service, number=n).url for n in (0, 2))
    refused = dave.post("services/chat/scale_in", {"engine_urls": [first]})
    assert (refused.status_code, refused.json()["errors"][0]["path"]) == (400, "engine_urls[0]")
    said = dave.post("services/chat/scale_in", {"engine_urls": [third]}).json()
    stage.finish(ScaleRequest.objects.get(pk=said["request_id"]))
    assert stage.states(service) == ["ACTIVE", "ACTIVE", "REMOVED", "ACTIVE"]


@pytest.mark.shows("RLX-53")
def test_weights_that_are_being_changed_are_waited_for(stage: ServiceStage, dave: Caller) -> None:
    service = grown(stage, 3)
    assert dave.post("services/chat/weights", {"updating": True}).json()["updating"] is True
    late = stage.finish(stage.into(service, num_replicas=2, timeout_secs=20), seconds=5)
    assert (late.status, stage.states(service)) == ("FAILED", ["ACTIVE"] * 3)
    request = stage.into(service, num_replicas=2)
    stage.tick(3)
    assert stage.fresh(request).status == "PENDING"
    dave.post("services/chat/weights", {"updating": False})
    assert stage.finish(request).status == "COMPLETED"


@pytest.mark.shows("RLX-41")
def test_a_router_that_is_down_keeps_engines_in_and_the_request_says_so(stage: ServiceStage) -> None:
    service = grown(stage, 3)
    stage.router.always("mark_unhealthy", Fail(message="it is down"))
    stage.router.always("workers", Fail(message="it is down"))
    request = stage.finish(stage.into(service, num_replicas=2, timeout_secs=20), seconds=5)
    assert (request.status, request.failure) == ("FAILED", "router")
    assert [one["engine_id"] for one in request.failed_engines] == ["engine_2"]
    assert stage.states(service) == ["ACTIVE"] * 3


@pytest.mark.shows("RLX-51", "RLX-52", "RLX-55")
def test_what_could_not_be_removed_is_named_and_what_was_stays_removed(stage: ServiceStage) -> None:
    service = grown(stage)
    stuck = InferenceEngine.objects.get(service=service, number=3)
    stage.router.always("mark_unhealthy", Fail(message="not this one"), engine=stuck.url)
    request = stage.finish(stage.into(service, num_replicas=2, timeout_secs=30), seconds=3)
    assert request.status == "COMPLETED"
    assert "engine_3" in request.error_message
    assert [one["engine_id"] for one in request.failed_engines] == ["engine_3"]
    assert stage.states(service) == ["ACTIVE", "ACTIVE", "REMOVED", "ACTIVE"]
    stage.router.always("mark_unhealthy", None, engine=stuck.url)
    assert stage.finish(stage.into(service, num_replicas=2)).status == "COMPLETED"
    assert stage.states(service) == ["ACTIVE", "ACTIVE", "REMOVED", "REMOVED"]


def test_an_entry_that_a_dead_router_still_owes_is_taken_out_once_it_is_back(stage: ServiceStage) -> None:
    service = grown(stage, 3)
    last = InferenceEngine.objects.get(service=service, number=2)
    stage.router.always("unregister", Fail(message="it is down"))
    request = stage.finish(stage.into(service, num_replicas=2), seconds=4)
    assert request.status == "COMPLETED"
    assert last.url in stage.router.has
    stage.router.always("unregister", None)
    stage.tick(2)
    assert last.url not in stage.router.has
    stage.nothing_is_lost()


def test_a_service_that_ends_takes_all_its_engines_along(stage: ServiceStage) -> None:
    service = grown(stage, 3)
    workloads.cancel(acting=stage.stage.cast.dave, workload=service.workload, now=stage.stage.clock.now())
    stage.until(lambda: not stage.living())
    assert stage.states(service) == ["REMOVED"] * 3
    assert not stage.router.has
    assert not stage.stage.runtime.running()


def test_a_service_whose_router_is_gone_for_good_ends_all_the_same(stage: ServiceStage) -> None:
    service = stage.serve()
    stage.router.always("unregister", Fail(message="it is gone"))
    workloads.cancel(acting=stage.stage.cast.dave, workload=service.workload, now=stage.stage.clock.now())
    stage.tick(10, seconds=10)
    assert (stage.states(service), len(stage.living())) == (["REMOVED"], 1)
    stage.tick(2, seconds=3600)
    assert not stage.living()
