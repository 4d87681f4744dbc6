"""Tests for the filters and orders of the list of services."""

import pytest
from django.test import Client
from django.utils import timezone

from projects.models import InferenceEngine, MetricsPoint, Service
from projects.web.services.serving import load_serving_statuses
from tests.services.stage import ServiceStage


@pytest.fixture
def dave(stage: ServiceStage) -> Client:
    client = Client()
    client.force_login(stage.stage.cast.people["dave"].user)
    return client


def names(client: Client, query: str) -> list[str]:
    return [row.service.workload.name for row in client.get(f"/services?{query}").context["rows"]]


@pytest.mark.heavy
def test_services_are_sorted_by_load(stage: ServiceStage, dave: Client) -> None:
    busy, idle, silent = (stage.serve(engines=1, name=name) for name in ("busy", "idle", "silent"))
    MetricsPoint.objects.all().delete()
    for service, queued in ((busy, 12), (idle, 0)):
        MetricsPoint.objects.create(
            service=service, at=timezone.now(), engines=1, reporting=1,
            values={"total_queue_reqs": queued, "total_running_reqs": queued, "queue_time_p95": queued / 4},
        )  # fmt: skip
    for column in ("queued", "running", "queue-time"):
        assert names(dave, f"sort=-{column}") == ["busy", "idle", "silent"]
        assert names(dave, f"sort={column}") == ["silent", "idle", "busy"]
    assert silent.workload.name in names(dave, "")


@pytest.mark.parametrize(
    ("healthy", "state"),
    [((True, True), "serving"), ((True, False), "partly"), ((False, False), "not-serving")],
)
def test_service_state_filter_agrees_with_the_listed_state(
    stage: ServiceStage, dave: Client, healthy: tuple[bool, bool], state: str
) -> None:
    service = stage.serve(engines=2)
    for engine, is_healthy in zip(InferenceEngine.objects.order_by("pk"), healthy, strict=True):
        InferenceEngine.objects.filter(pk=engine.pk).update(state="ACTIVE", is_healthy=is_healthy)
    titles = {"serving": "Serving", "partly": "Partly serving", "not-serving": "Not serving"}
    status = load_serving_statuses([Service.objects.get().workload])[service.workload_id]
    assert status.title == titles[state]
    for each in (*titles, "ended"):
        assert bool(names(dave, f"state={each}")) == (each == state)
    assert "No services match these filters." in dave.get("/services?state=ended").content.decode()
