"""Tests for the scaling endpoints: request statuses, HTTP codes and fields."""

from collections.abc import Callable
from typing import Any

import pytest

from projects.models import ScaleRequest
from tests.api.conftest import Caller
from tests.services.stage import ServiceStage, document

EXTERNAL_ENGINES = ("http://198.51.100.10:30000", "http://198.51.100.11:30000")


@pytest.mark.heavy
@pytest.mark.shows("RLX-15", "RLX-16", "RLX-19", "RLX-20", "RLX-22", "RLX-47", "RLX-61")
def test_scale_out_from_four_to_eight_engines_is_reported_and_listed(
    stage: ServiceStage, dave: Caller
) -> None:
    service = stage.serve(engines=4)
    answer = dave.post("services/chat/scale_out", {"num_replicas": 8, "timeout_secs": 300})
    accepted = answer.json()
    assert (answer.status_code, accepted["status"]) == (200, "PENDING")
    assert accepted["message"] == "Scale-out request accepted"
    at = f"services/chat/scale_out/{accepted['request_id']}"
    stage.until(lambda: dave.get(at).json()["status"] == "ACTIVE")
    request = dave.get(at).json()
    assert {name: request[name] for name in ("model_name", "num_replicas", "engine_urls", "engine_ids")} == {
        "model_name": "default", "num_replicas": 8, "engine_urls": [],
        "engine_ids": ["engine_4", "engine_5", "engine_6", "engine_7"],
    }  # fmt: skip
    assert (request["failed_engines"], request["error_message"], request["weight_version"]) == (
        [],
        None,
        None,
    )
    assert [step["status"] for step in request["steps"]][-1] == "ACTIVE"
    assert isinstance(request["updated_at"], float)
    assert dave.get("services/chat/engines").json()["total_engines"] == 8
    assert stage.states(service) == ["ACTIVE"] * 8

    def listed(**query: str) -> list[str]:
        return [one["status"] for one in dave.get("services/chat/scale_out", **query).json()["items"]]

    dave.post("services/chat/scale_out", {"num_replicas": 9})
    assert listed() == ["PENDING", "ACTIVE"]
    assert listed(status="ACTIVE") == ["ACTIVE"]
    assert listed(status="ACTIVE", model_name="default") == ["ACTIVE"]
    assert listed(model_name="other") == []
    assert dave.get("services/chat/scale_out", status="SLEEPING").status_code == 400


@pytest.mark.shows("RLX-06", "RLX-07", "RLX-26", "RLX-60")
def test_repeated_scale_request_returns_its_first_id_and_a_different_request_returns_409(
    stage: ServiceStage, dave: Caller
) -> None:
    stage.serve()
    first, replayed = (
        dave.post("services/chat/scale_out", {"num_replicas": 3}, Idempotency_Key="k") for _ in range(2)
    )
    assert (replayed.json(), replayed["Idempotency-Replayed"]) == (first.json(), "true")
    first = first.json()
    again = dave.post("services/chat/scale_out", {"num_replicas": 3})
    assert (again.status_code, again.json()["request_id"]) == (200, first["request_id"])
    fewer = dave.post("services/chat/scale_out", {"num_replicas": 2})
    assert (fewer.status_code, fewer.json()["status"]) == (200, "NOOP")
    for rejected in (
        dave.post("services/chat/scale_out", {"num_replicas": 4}),
        dave.post("services/chat/scale_in", {"num_replicas": 1}),
    ):
        assert (rejected.status_code, rejected.json()["code"]) == (409, "scale-operation-running")
        assert rejected.json()["running"] == first["request_id"]


@pytest.mark.shows("RLX-04", "RLX-14", "RLX-17", "RLX-27", "RLX-28")
def test_external_engine_cannot_be_connected_twice(stage: ServiceStage, dave: Caller) -> None:
    service = stage.serve()
    for url in EXTERNAL_ENGINES:
        stage.engines.appear(url)
    answer = dave.post("services/chat/scale_out", {"engine_urls": [f"{EXTERNAL_ENGINES[0]}/"]}).json()
    request = stage.finish(ScaleRequest.objects.get(pk=answer["request_id"]))
    assert stage.statuses(request)[:2] == ["PENDING", "CONNECTING"]
    assert stage.statuses(request)[2:] == ["HEALTH_CHECKING", "WEIGHT_SYNCING", "READY", "ACTIVE"]
    assert EXTERNAL_ENGINES[0] in stage.routed_urls()
    answer = dave.post("services/chat/scale_out", {"engine_urls": list(EXTERNAL_ENGINES)}).json()
    request = stage.finish(ScaleRequest.objects.get(pk=answer["request_id"]))
    assert request.engine_urls == [EXTERNAL_ENGINES[1]]
    answer = dave.post("services/chat/scale_out", {"engine_urls": list(EXTERNAL_ENGINES)}).json()
    assert answer["status"] == "NOOP"
    assert stage.states(service) == ["ACTIVE"] * 3


INVALID_PARAMETERS: list[tuple[str, dict[str, object], str]] = [
    ("scale_in", {"num_replicas": 1}, "num_replicas"),
    ("scale_in", {}, "num_replicas"),
    ("scale_out", {}, "num_replicas"),
    ("scale_out", {"num_replicas": 3, "engine_urls": ["http://198.51.100.1:1"]}, "engine_urls"),
    ("scale_out", {"num_replicas": -1}, "num_replicas"),
    ("scale_out", {"num_replicas": "four"}, "num_replicas"),
    ("scale_out", {"num_replicas": 3, "timeout_secs": 0}, "timeout_secs"),
    ("scale_out", {"num_replicas": 3, "model_name": "other"}, "model_name"),
    ("scale_out", {"num_replicas": 3, "replicas": 3}, "replicas"),
    ("scale_out", {"engine_urls": ["file:///etc/passwd"]}, "engine_urls[0]"),
    ("scale_out", {"engine_urls": ["http://169.254.169.254/latest"]}, "engine_urls[0]"),
    ("scale_out", {"engine_urls": ["http://127.0.0.1:8000"]}, "engine_urls[0]"),
    ("scale_out", {"num_replicas": 3, "mode": "external"}, "mode"),
    ("scale_in", {"engine_urls": ["http://198.51.100.1:1"]}, "engine_urls[0]"),
]


@pytest.mark.shows("RLX-49", "RLX-60")
def test_invalid_parameters_return_400_with_their_path(stage: ServiceStage, dave: Caller) -> None:
    stage.submit(engines=2)
    for path, body, field in INVALID_PARAMETERS:
        answer = dave.post(f"services/chat/{path}", body)
        assert answer.status_code == 400, body
        assert answer.json()["errors"][0]["path"] == field
    assert not ScaleRequest.objects.exists()


@pytest.mark.shows("RLX-21", "RLX-60")
def test_unknown_services_and_requests_return_404(stage: ServiceStage, dave: Caller) -> None:
    stage.submit()
    for path in (
        "services/none/engines", "services/chat/scale_out/550e8400-e29b-41d4-a716-446655440000",
        "services/chat/scale_in/nonsense",
    ):  # fmt: skip
        assert dave.get(path).status_code == 404


@pytest.mark.shows("RLX-23", "RLX-24", "RLX-25")
def test_bulk_cancellation_supports_a_dry_run_and_a_status_filter(stage: ServiceStage, dave: Caller) -> None:
    service = stage.serve()
    request = stage.scale_out(service, num_replicas=3)
    path = "services/chat/scale_out_cancel"
    assert dave.post(path, {"dry_run": True}).json()["cancelled"] == [
        {"request_id": str(request.pk), "status": "PENDING"}
    ]
    assert dave.post(path, {"status_filter": "CREATING"}).json()["count"] == 0
    assert stage.reload(request).status == "PENDING"
    assert dave.post(path, {"status_filter": "PENDING"}).json()["cancelled"][0]["status"] == "CANCELLED"
    assert dave.post(f"services/chat/scale_out/{request.pk}/cancel").json()["status"] == "CANCELLED"


@pytest.mark.shows("RLX-59")
def test_engines_are_listed_by_model_with_their_nodes(stage: ServiceStage, dave: Caller) -> None:
    stage.serve(engines=2)
    answer = dave.get("services/vision.chat/engines").json()
    first = answer["models"]["default"]["engines"][0]
    assert (answer["total_engines"], first["engine_id"], first["status"]) == (2, "engine_0", "ACTIVE")
    assert (first["is_healthy"], first["origin"], first["gpus"]) == (True, "initial", 1)
    assert first["in_router"] is True
    assert first["url"].startswith("http://127.0.0.1:")
    assert first["node"].startswith("local-")


def test_services_of_other_projects_return_404(stage: ServiceStage, caller: Callable[[str], Caller]) -> None:
    stage.submit()
    grace, erin = caller("grace"), caller("erin")
    assert grace.get("services").json()["items"] == []
    assert grace.get("services/chat").status_code == 404
    assert grace.post("services/chat/scale_out", {"num_replicas": 2}).status_code == 404
    assert erin.get("services").json()["items"][0]["name"] == "chat"
    assert erin.post("services/chat/scale_out", {"num_replicas": 2}).status_code == 403


INVALID_SECTIONS: list[tuple[dict[str, Any], str]] = [
    ({"router": {"kind": "sglang"}}, "service.router.url"),
    ({"router": {"kind": "sglang", "url": "ftp://router"}}, "service.router.url"),
    ({"role": "nobody"}, "service.role"),
    ({"engine": "openai", "weight_sync": True}, "service.weight_sync"),
    ({"autoscaler": {"max_engines": 0}}, "service.autoscaler.max_engines"),
    ({"scale_out_timeout": 0}, "service.scale_out_timeout"),
]


def test_invalid_service_document_returns_422_and_names_the_field(dave: Caller) -> None:
    for section, field in INVALID_SECTIONS:
        answer = dave.post("workloads", {**document(**section), "project": "vision"})
        assert answer.status_code == 422, section
        assert field in [error["path"] for error in answer.json()["errors"]]
