"""Tests for scale-in: the newest engines are removed first, and no request is dropped."""

from typing import Any

import pytest

from projects.elastic.step import live_services
from projects.models import InferenceEngine, ScaleRequest, Service
from projects.services import workloads
from tests.api.conftest import Caller
from tests.fakes.serving import Fail
from tests.services.stage import ServiceStage
from tests.support.present import present

STATUSES = ["PENDING", "DRAINING", "REMOVING", "COMPLETED"]


def scaled_out_service(stage: ServiceStage, total: int = 4, **service: Any) -> Service:
    created = stage.serve(engines=2, **service)
    stage.finish(stage.scale_out(created, num_replicas=total))
    return created


@pytest.mark.shows("RLX-41", "RLX-43", "RLX-48", "RLX-56", "RLX-57")
def test_scale_in_removes_newest_engines_and_their_workloads(stage: ServiceStage) -> None:
    service = scaled_out_service(stage)
    request = stage.finish(stage.scale_in(service, num_replicas=3))
    assert (request.status, stage.statuses(request)) == ("COMPLETED", STATUSES)
    assert stage.states(service) == ["ACTIVE", "ACTIVE", "ACTIVE", "REMOVED"]
    assert [child.phase for child in stage.children()] == ["running", "cancelled"]
    assert len(stage.routed_urls()) == 3
    stage.tick(5, seconds=10)
    assert stage.states(service) == ["ACTIVE", "ACTIVE", "ACTIVE", "REMOVED"], (
        "the removed engine is not registered again"
    )
    stage.assert_no_orphans()


@pytest.mark.heavy
@pytest.mark.shows("RLX-09", "RLX-45", "RLX-50", "RLX-54")
def test_engine_drains_before_removal_unless_the_removal_is_forced_or_times_out(stage: ServiceStage) -> None:
    service = scaled_out_service(stage, 5, scale_in_drain_timeout=20)
    drained, slow, forced = (InferenceEngine.objects.get(service=service, number=n).url for n in (4, 3, 2))

    stage.engines.run(drained, 5)
    request = stage.scale_in(service, num_replicas=4)
    stage.tick(8)
    assert stage.reload(request).status == "DRAINING"
    assert drained not in stage.routed_urls(), "the engine gets no new requests"
    stage.engines.run(drained, 0)
    assert stage.finish(request).status == "COMPLETED"
    assert stage.engines.count("abort") == 0

    stage.engines.run(slow, 5)
    request = stage.scale_in(service, num_replicas=3)
    stage.tick(10, seconds=1)
    assert stage.reload(request).status == "DRAINING"
    assert stage.finish(request, seconds=4).status == "COMPLETED"
    assert stage.engines.count("abort") == 1

    stage.engines.run(forced, 5)
    request = stage.finish(stage.scale_in(service, num_replicas=2, force=True))
    assert (request.status, stage.statuses(request)) == ("COMPLETED", STATUSES)
    assert (present(request.ended_at) - request.created_at).total_seconds() < 10


@pytest.mark.shows("RLX-10", "RLX-42", "RLX-44", "RLX-46", "RLX-58")
def test_scale_in_by_url_keeps_initial_engines(stage: ServiceStage, dave: Caller) -> None:
    service = scaled_out_service(stage)
    body = {"num_replicas": 2, "dry_run": True}
    answer = dave.post("services/chat/scale_in", body).json()
    assert (answer["request_id"], answer["status"]) == (None, "DRY_RUN")
    assert answer["engine_ids"] == ["engine_3", "engine_2"]
    assert ScaleRequest.objects.filter(direction="scale_in").count() == 0
    assert stage.states(service) == ["ACTIVE"] * 4
    assert dave.post("services/chat/scale_in", {"num_replicas": 4}).json()["status"] == "NOOP"

    first, third = (InferenceEngine.objects.get(service=service, number=n).url for n in (0, 2))
    rejected = dave.post("services/chat/scale_in", {"engine_urls": [first]})
    assert (rejected.status_code, rejected.json()["errors"][0]["path"]) == (400, "engine_urls[0]")
    answer = dave.post("services/chat/scale_in", {"engine_urls": [third]}).json()
    stage.finish(ScaleRequest.objects.get(pk=answer["request_id"]))
    assert stage.states(service) == ["ACTIVE", "ACTIVE", "REMOVED", "ACTIVE"]


@pytest.mark.heavy
@pytest.mark.shows("RLX-51", "RLX-52", "RLX-55")
def test_partial_scale_in_names_the_engines_that_failed(stage: ServiceStage) -> None:
    service = scaled_out_service(stage)
    stuck = InferenceEngine.objects.get(service=service, number=3)
    stage.router.always("mark_unhealthy", Fail(message="not this one"), engine=stuck.url)
    request = stage.finish(stage.scale_in(service, num_replicas=2, timeout_secs=30), seconds=3)
    assert request.status == "COMPLETED"
    assert "engine_3" in request.error_message
    assert [one["engine_id"] for one in request.failed_engines] == ["engine_3"]
    assert stage.states(service) == ["ACTIVE", "ACTIVE", "REMOVED", "ACTIVE"]
    stage.router.always("mark_unhealthy", None, engine=stuck.url)
    assert stage.finish(stage.scale_in(service, num_replicas=2)).status == "COMPLETED"
    assert stage.states(service) == ["ACTIVE", "ACTIVE", "REMOVED", "REMOVED"]


@pytest.mark.heavy
@pytest.mark.shows("RLX-41", "RLX-53")
def test_scale_in_waits_for_weight_updates_and_fails_while_the_router_is_down(
    stage: ServiceStage, dave: Caller
) -> None:
    service = scaled_out_service(stage, 3)
    assert dave.post("services/chat/weights", {"updating": True}).json()["updating"] is True
    late = stage.finish(stage.scale_in(service, num_replicas=2, timeout_secs=20), seconds=5)
    assert (late.status, stage.states(service)) == ("FAILED", ["ACTIVE"] * 3)

    dave.post("services/chat/weights", {"updating": False})
    for call in ("mark_unhealthy", "workers"):
        stage.router.always(call, Fail(message="it is down"))
    request = stage.finish(stage.scale_in(service, num_replicas=2, timeout_secs=20), seconds=5)
    assert (request.status, request.failure) == ("FAILED", "router")
    assert [one["engine_id"] for one in request.failed_engines] == ["engine_2"]
    assert stage.states(service) == ["ACTIVE"] * 3

    for call in ("mark_unhealthy", "workers"):
        stage.router.always(call, None)
    dave.post("services/chat/weights", {"updating": True})
    request = stage.scale_in(service, num_replicas=2)
    stage.tick(3)
    assert stage.reload(request).status == "PENDING"
    dave.post("services/chat/weights", {"updating": False})
    assert stage.finish(request).status == "COMPLETED"


@pytest.mark.heavy
def test_router_entry_is_removed_once_the_router_is_reachable_again(stage: ServiceStage) -> None:
    service = scaled_out_service(stage, 3)
    last = InferenceEngine.objects.get(service=service, number=2)
    stage.router.always("unregister", Fail(message="it is down"))
    request = stage.finish(stage.scale_in(service, num_replicas=2), seconds=4)
    assert request.status == "COMPLETED"
    assert last.url in stage.router.registered
    stage.router.always("unregister", None)
    stage.tick(2)
    assert last.url not in stage.router.registered
    stage.assert_no_orphans()


def test_all_engines_of_a_cancelled_service_are_removed(stage: ServiceStage) -> None:
    service = scaled_out_service(stage, 3)
    workloads.cancel(actor=stage.stage.cast.dave, workload=service.workload, now=stage.stage.clock.now())
    stage.until(lambda: not live_services())
    assert stage.states(service) == ["REMOVED"] * 3
    assert not stage.router.registered
    assert not stage.stage.runtime.running()


@pytest.mark.heavy
def test_service_ends_even_if_its_router_stays_unreachable(stage: ServiceStage) -> None:
    service = stage.serve()
    stage.router.always("unregister", Fail(message="it is gone"))
    workloads.cancel(actor=stage.stage.cast.dave, workload=service.workload, now=stage.stage.clock.now())
    stage.tick(10, seconds=10)
    assert (stage.states(service), len(live_services())) == (["REMOVED"], 1)
    stage.tick(2, seconds=3600)
    assert not live_services()
