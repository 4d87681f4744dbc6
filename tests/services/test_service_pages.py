"""Tests for the service pages."""

from collections.abc import Callable

import pytest
from django.test import Client

from projects.models import Autoscaler, ScaleRequest
from projects.web.services.conditions import use_condition_titles
from tests.services.stage import ServiceStage

HTMX = {"HTTP_HX_REQUEST": "true"}


@pytest.fixture
def sign_in(stage: ServiceStage) -> Callable[[str], Client]:
    def signed_in(name: str) -> Client:
        client = Client()
        client.force_login(stage.stage.cast.people[name].user)
        return client

    return signed_in


def test_list_and_page_show_engines_and_running_scale_out(
    stage: ServiceStage, sign_in: Callable[[str], Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("projects.web.services.pages.timezone.now", stage.stage.clock.now)
    dave = sign_in("dave")
    assert "No services yet" in dave.get("/services").content.decode()
    service = stage.serve(engines=2)
    stage.scale_out(service, num_replicas=9)
    stage.tick(4, seconds=4)
    listed = dave.get("/services").content.decode()
    assert '2 <span class="unit">of 9 serving' in listed
    shown = dave.get(f"/services/{service.workload_id}").content.decode()
    assert "Scale-out in progress" in shown
    assert "Show pending reason" in shown
    assert 'aria-current="step"' in shown
    assert "Token usage high" in shown
    assert "above 5 s" in shown and "above 85 %<" in shown, "every number has its unit"
    assert '<path class="used" d="M' in shown, "the measurements are shown as a chart"


def test_autoscaler_reasons_use_the_condition_names_of_the_table() -> None:
    reason = "Conditions met: token_usage_high, queue_backlog"
    assert use_condition_titles(reason) == "Conditions met: Token usage high, Queue backlog"


def test_scale_in_is_previewed_before_it_starts(
    stage: ServiceStage, sign_in: Callable[[str], Client]
) -> None:
    service, dave = stage.serve(), sign_in("dave")
    stage.finish(stage.scale_out(service, num_replicas=3))
    at = f"/services/{service.workload_id}/scale-in"
    preview = dave.post(at, {"num_replicas": "1"}, **HTMX).content.decode()
    assert "engine_2, http://" in preview
    assert not ScaleRequest.objects.filter(direction="scale_in").exists()
    done = dave.post(at, {"num_replicas": "1", "confirmed": "1"}, **HTMX)
    assert (done.status_code, ScaleRequest.objects.filter(direction="scale_in").count()) == (204, 1)
    refused = dave.post(at, {"num_replicas": "0"}, **HTMX)
    assert refused.status_code == 422


def test_forms_scale_out_cancel_and_configure_the_autoscaler(
    stage: ServiceStage, sign_in: Callable[[str], Client]
) -> None:
    service, dave = stage.serve(engines=2), sign_in("dave")
    at = f"/services/{service.workload_id}"
    both = {"num_replicas": "3", "engine_urls": "http://198.51.100.1"}
    refused = dave.post(f"{at}/scale-out", both, **HTMX)
    assert "cannot be combined with num_replicas" in refused.content.decode().lower()
    assert dave.post(f"{at}/scale-out", {"num_replicas": "3"}, **HTMX).status_code == 204
    request = ScaleRequest.objects.get()
    assert dave.post(f"{at}/cancel/{request.pk}", **HTMX).status_code == 204
    assert stage.reload(request).status == "CANCELLED"
    assert dave.post(f"{at}/autoscaler/on", **HTMX).status_code == 204
    assert Autoscaler.objects.get().enabled
    wrong = dave.post(f"{at}/autoscaler", {"settings": "max_engines: 0"}, **HTMX).content.decode()
    assert "max_engines" in wrong
    assert dave.post(f"{at}/autoscaler", {"settings": "max_engines: 9"}, **HTMX).status_code == 204
    assert Autoscaler.objects.get().settings["max_engines"] == 9


def test_viewer_sees_service_without_buttons_and_others_get_404(
    stage: ServiceStage, sign_in: Callable[[str], Client]
) -> None:
    service = stage.submit()
    at = f"/services/{service.workload_id}"
    assert "Scale out" not in sign_in("erin").get(at).content.decode()
    assert sign_in("erin").post(f"{at}/scale-out", {"num_replicas": "3"}).status_code == 403
    assert sign_in("grace").get(at).status_code == 404
    assert "chat" not in sign_in("grace").get("/services").content.decode()
