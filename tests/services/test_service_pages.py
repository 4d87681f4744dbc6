"""Tests for the service pages."""

import html
import json
import re
from collections.abc import Callable
from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone

from projects.engine.replicas.conditions import Condition
from projects.models import Autoscaler, MetricsPoint, ScaleRequest, Service
from projects.services.inference import autoscalers
from projects.web.services.conditions import explain_unknown_states, use_condition_titles
from tests.services.stage import ServiceStage
from tests.services.test_autoscaling import QUICK_SETTINGS, run
from tests.web.conftest import streamed

HTMX = {"HX-Request": "true"}
STATE = re.compile(r">(Met|Not met|Holds|Unknown)<")


@pytest.fixture
def sign_in(stage: ServiceStage) -> Callable[[str], Client]:
    def signed_in(name: str) -> Client:
        client = Client()
        client.force_login(stage.stage.cast.people[name].user)
        return client

    return signed_in


def test_service_list_and_page_show_engines_and_scale_out_progress(
    stage: ServiceStage, sign_in: Callable[[str], Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("projects.web.services.pages.timezone.now", stage.stage.clock.now)
    dave = sign_in("dave")
    assert "No services yet" in dave.get("/services").content.decode()
    service = stage.serve(engines=2)
    stage.scale_out(service, num_replicas=9)
    stage.tick(4, seconds=4)
    listed = dave.get("/services").content.decode()
    assert '2 <span class="unit">of 9</span>' in listed
    assert "2 of 9 serving: " in listed
    assert "Scale-out to 9 engines" in listed
    shown = dave.get(f"/services/{service.workload_id}").content.decode()
    assert "Scale-out in progress" in shown
    assert "Show pending reason" in shown
    assert 'aria-current="step"' in shown
    assert re.search(r'aria-label="Queued requests over time, now [\w ]+, in the last hour"', shown)
    assert "scale-out above" not in shown
    Autoscaler.objects.update(enabled=True)
    shown = dave.get(f"/services/{service.workload_id}").content.decode()
    assert "scale-out above 5 s" in shown
    assert shown.count('class="limit"') == 3 and re.search(r"┄ max \d+<", shown), (
        "each dashed line has its value"
    )
    Autoscaler.objects.update(enabled=False)
    scaling = dave.get(f"/services/{service.workload_id}?tab=autoscaler").content.decode()
    assert "Token usage high" in scaling and "Scale requests" in scaling
    assert "above 5 s" in scaling and "above 85%<" in scaling, "every number has its unit"
    metrics = dave.get(f"/services/{service.workload_id}?tab=metrics").content.decode()
    assert '<path class="used" d="M' in metrics, "the measurements are shown as a chart"


def test_service_metrics_are_shown_and_exported_for_the_time_range_in_the_url(
    stage: ServiceStage, sign_in: Callable[[str], Client]
) -> None:
    service, dave, now = stage.serve(engines=1), sign_in("dave"), timezone.now()
    for minutes, engines, queued in ((300, 3, 7), (20, 1, 2)):
        MetricsPoint.objects.create(
            service=service, at=now - timedelta(minutes=minutes), engines=engines, reporting=engines,
            values={"total_queue_reqs": queued},
        )  # fmt: skip
    at = f"/services/{service.workload_id}?tab=metrics"

    def shown(query: str) -> str:
        return dave.get(f"{at}{query}").content.decode()

    assert 'href="?tab=metrics&amp;span=1h" aria-current="true"' in shown("")
    assert 'href="?tab=metrics&amp;span=1h" aria-current="true"' in shown("&span=2y"), "unknown ranges"
    assert 'href="?tab=metrics&amp;span=6h" aria-current="true"' in shown("&span=6h")
    assert ",3,0," not in shown("") and ",3,0," in shown("&span=6h"), "the earlier sample"
    for span, rows in (("1h", 1), ("6h", 2)):
        csv = streamed(dave.get(f"{at}&span={span}&format=csv")).decode()
        assert len(csv.splitlines()) == 1 + rows
    assert "Metrics outdated, measured" in dave.get("/services").content.decode()
    service.points.filter(engines=1).delete()
    assert "No metrics in this time range" in shown("") and "Choose a longer time range." in shown("")
    assert "No metrics in this time range" not in shown("&span=24h")


def test_long_time_range_of_service_metrics_keeps_peaks_and_gaps(
    stage: ServiceStage, sign_in: Callable[[str], Client]
) -> None:
    service, dave, now = stage.serve(engines=1), sign_in("dave"), timezone.now()
    silent = range(1000, 1100)  # numbers of missing samples, which span ten seconds each
    MetricsPoint.objects.bulk_create(
        MetricsPoint(
            service=service, at=now - timedelta(seconds=10 * place), engines=1, reporting=1,
            values={"total_queue_reqs": 99 if place == 2000 else 1},
        )
        for place in range(1, 4000)
        if place not in silent
    )  # fmt: skip
    text = dave.get(f"/services/{service.workload_id}?tab=metrics&span=24h").content.decode()
    assert "Highest value per 4 minutes" in text
    queued = json.loads(html.unescape(re.findall(r'data-points="([^"]*)"', text)[2]))
    assert len(queued) < 400
    assert [value for _, value, *_ in queued].count(99) == 1
    gaps = [at - now.timestamp() for at, _, gap, _ in queued if gap]
    assert gaps and all(-11000 <= at <= -10000 for at in gaps), "only where samples are missing"


def test_autoscaler_reasons_use_the_condition_titles() -> None:
    reason = "Conditions met: token_usage_high, queue_backlog"
    assert use_condition_titles(reason) == "Conditions met: Token usage high, Queue backlog"


def test_scale_in_is_previewed_before_it_starts(
    stage: ServiceStage, sign_in: Callable[[str], Client]
) -> None:
    service, dave = stage.serve(), sign_in("dave")
    stage.finish(stage.scale_out(service, num_replicas=3))
    at = f"/services/{service.workload_id}/scale-in"
    assert dave.post(at, {"num_replicas": "0"}, headers=HTMX).status_code == 422
    same = dave.post(at, {"num_replicas": "3"}, headers=HTMX)
    assert (same.status_code, "no more engines than requested" in same.content.decode()) == (422, True)
    preview = dave.post(at, {"num_replicas": "1"}, headers=HTMX).content.decode()
    assert "engine_2 (serving), http://" in preview
    assert not ScaleRequest.objects.filter(direction="scale_in").exclude(status="NOOP").exists()
    done = dave.post(at, {"num_replicas": "1", "confirmed": "1"}, headers=HTMX)
    assert (done.status_code, ScaleRequest.objects.get(status="PENDING").direction) == (204, "scale_in")


def test_forms_scale_a_service_and_configure_its_autoscaler(
    stage: ServiceStage, sign_in: Callable[[str], Client]
) -> None:
    service, dave = stage.serve(engines=2), sign_in("dave")
    at = f"/services/{service.workload_id}"
    both = {"num_replicas": "3", "engine_urls": "http://198.51.100.1"}
    rejected = dave.post(f"{at}/scale-out", both, headers=HTMX)
    assert "cannot be combined with total engines" in rejected.content.decode().lower()
    fewer = dave.post(f"{at}/scale-out", {"num_replicas": "2"}, headers=HTMX)
    assert (fewer.status_code, ScaleRequest.objects.count()) == (422, 0)
    assert "&quot;2&quot; is too low. Enter 3 or more." in fewer.content.decode()
    assert dave.post(f"{at}/scale-out", {"num_replicas": "3"}, headers=HTMX).status_code == 204
    request = ScaleRequest.objects.get()
    for to in (f"{at}/scale-out", f"{at}/scale-in"):
        dialog = dave.get(to, headers=HTMX).content.decode()
        assert "A scale-out to 3 engines by dave is in progress. Wait until it ends, or cancel it." in dialog
        assert f'href="{at}/cancel/{request.pk}">Cancel scale-out</a>' in dialog
    assert f'<a href="{at}">{service}</a></nav>' in dave.get(f"{at}/scale-in").content.decode()
    page = dave.get(at).content.decode()
    assert '<span class="menu-off" role="link" aria-disabled="true">Scale out</span>' in page
    assert "A scale-out to 3 engines by dave is in progress. Wait until it ends, or cancel it." in page
    assert f'href="{at}/scale-in"' not in page
    ScaleRequest.objects.update(status="ROLLING_BACK", ends_as="CANCELLED")
    page = dave.get(at).content.decode()
    assert "Cancelling the scale-out" in page and "Times out" not in page
    assert "Show pending reason" not in page
    ScaleRequest.objects.update(status="PENDING", ends_as="")
    assert dave.post(f"{at}/cancel/{request.pk}", headers=HTMX).status_code == 204
    assert stage.reload(request).status == "CANCELLED"
    assert dave.post(f"{at}/autoscaler/on", headers=HTMX).status_code == 204
    assert Autoscaler.objects.get().enabled


def autoscaler_fields(client: Client, at: str, **changes: object) -> dict[str, object]:
    """Return the values of the form on the page, with some of them changed."""
    form = client.get(f"{at}/autoscaler").context["form"]
    shown = {name: form[name].value() for name in form.fields if form[name].value() is not False}
    return {**shown, **changes}


def test_autoscaler_form_saves_percentages_as_fractions_and_keeps_other_settings(
    stage: ServiceStage, sign_in: Callable[[str], Client]
) -> None:
    service, dave = stage.serve(engines=2), sign_in("dave")
    at = f"/services/{service.workload_id}"
    before = autoscalers.full_settings(Autoscaler.objects.get())
    fields = autoscaler_fields(
        dave, at, enabled="on", max_engines="9", scale_out_policy__token_usage_threshold="72.5",
        scale_out_policy__durations__ttft_high="45", scale_out_policy__ttft_p95_threshold="750 ms",
        scale_in_cooldown_secs="1 h 30 min", metrics_interval_secs="2.5 s",
    )  # fmt: skip
    assert dave.post(f"{at}/autoscaler", fields, headers=HTMX).status_code == 204
    after = autoscalers.full_settings(Autoscaler.objects.get())
    assert after["enabled"] and after["max_engines"] == 9
    assert after["scale_out_policy"]["token_usage_threshold"] == 0.725
    assert after["scale_out_policy"]["durations"]["ttft_high"] == 45
    assert after["scale_out_policy"]["ttft_p95_threshold"] == 0.75
    assert (after["scale_in_cooldown_secs"], after["metrics_interval_secs"]) == (5400, 2.5)
    shown = autoscaler_fields(dave, at)
    assert shown["scale_out_policy__ttft_p95_threshold"] == "0.75 s"
    assert (shown["scale_in_cooldown_secs"], shown["metrics_interval_secs"]) == ("1 h 30 min", "2.5 s")
    unchanged = {key for key in before if before[key] == after[key]}
    assert {"scale_in_policy", "rollout_service_url", "min_engines"} <= unchanged


def test_autoscaler_form_shows_errors_next_to_their_fields(
    stage: ServiceStage, sign_in: Callable[[str], Client]
) -> None:
    service, dave = stage.serve(), sign_in("dave")
    at = f"/services/{service.workload_id}"
    invalid = autoscaler_fields(dave, at, scale_in_cooldown_secs="soon")
    answer = dave.post(f"{at}/autoscaler", invalid, headers=HTMX)
    assert answer.context["form"].errors == {
        "scale_in_cooldown_secs": ["Enter a duration, for example 90 s, 10 min or 1 h 30 min."]
    }
    fields = autoscaler_fields(dave, at, max_engines="0", scale_in_policy__token_usage_threshold="130")
    answer = dave.post(f"{at}/autoscaler", fields, headers=HTMX)
    assert answer.status_code == 422
    errors = answer.context["form"].errors
    assert set(errors) == {"max_engines", "scale_in_policy__token_usage_threshold"}
    assert errors["scale_in_policy__token_usage_threshold"] == ['"130" is too high. Enter 100 or less.']
    crossed = autoscaler_fields(dave, at, min_engines="9", max_engines="8")
    errors = dave.post(f"{at}/autoscaler", crossed, headers=HTMX).context["form"].errors
    assert errors == {"max_engines": ["Must be at least Min engines (9)."]}


def test_autoscaler_form_shows_all_errors_together(
    stage: ServiceStage, sign_in: Callable[[str], Client]
) -> None:
    service, dave = stage.serve(), sign_in("dave")
    at = f"/services/{service.workload_id}"
    invalid = autoscaler_fields(
        dave, at, min_engines="9", max_engines="3", scale_in_cooldown_secs="soon",
        scale_in_policy__token_usage_threshold="130",
    )  # fmt: skip
    answer = dave.post(f"{at}/autoscaler", invalid)
    assert set(answer.context["form"].errors) == {
        "max_engines", "scale_in_cooldown_secs", "scale_in_policy__token_usage_threshold",
    }  # fmt: skip
    assert "Correct these 3 fields" in answer.content.decode()


@pytest.mark.heavy
def test_autoscaler_settings_are_previewed_on_recorded_metrics_without_saving(
    stage: ServiceStage, sign_in: Callable[[str], Client]
) -> None:
    service, dave = stage.serve(engines=1), sign_in("dave")
    at, now = f"/services/{service.workload_id}", timezone.now()
    MetricsPoint.objects.all().delete()
    empty = dave.post(
        f"{at}/autoscaler", autoscaler_fields(dave, at, check="1"), headers=HTMX
    ).content.decode()
    assert "there are no metrics from the last day" in empty
    for number in range(60):
        MetricsPoint.objects.create(
            service=service, at=now - timedelta(seconds=10 * (60 - number)), engines=1, reporting=1,
            values={"avg_token_usage": 0.95, "total_queue_reqs": 30, "queue_time_p95": 1.0},
        )  # fmt: skip
    stored = Autoscaler.objects.get().settings
    text = dave.post(
        f"{at}/autoscaler", autoscaler_fields(dave, at, max_engines="4", check="1"), headers=HTMX
    ).content.decode()
    assert "The recorded metrics would trigger 1 scale-out and 0 scale-ins" in text
    assert "1 to 3 engines" in text
    assert "Conditions met: Token usage high, Queue backlog" in text
    calm = autoscaler_fields(
        dave, at, scale_out_policy__token_usage_threshold="99", scale_out_policy__queue_depth_per_engine="50",
        check="1",
    )  # fmt: skip
    assert (
        "The recorded metrics would not trigger any scaling"
        in dave.post(f"{at}/autoscaler", calm, headers=HTMX).content.decode()
    )
    assert Autoscaler.objects.get().settings == stored


def test_service_header_shows_serving_engines_and_why_other_engines_do_not_serve(
    stage: ServiceStage, sign_in: Callable[[str], Client]
) -> None:
    service, dave = stage.serve(engines=2), sign_in("dave")
    at = f"/services/{service.workload_id}"
    assert "2 of 2 serving</p>" in dave.get(at).content.decode()
    engines = service.engines.order_by("number")
    engines.filter(number=engines[0].number).update(
        state="HEALTH_CHECKING", is_healthy=False, failures=4, message="responded with 404: not found"
    )
    text = dave.get(at).content.decode()
    assert "1 of 2 serving: 1 health check fails" in text
    assert '<span class="chip warn">Partly serving</span>' in text
    assert "responded with 404: not found" in text
    engines.update(state="HEALTH_CHECKING", is_healthy=False, failures=4)
    assert "0 of 2 serving: health check fails" in dave.get(at).content.decode()
    assert '<span class="chip bad">Not serving</span>' in dave.get("/services").content.decode()


def test_new_service_form_starts_with_a_valid_document(
    stage: ServiceStage, sign_in: Callable[[str], Client]
) -> None:
    dave = sign_in("dave")
    assert 'href="/submit?kind=service"' in dave.get("/services").content.decode()
    assert "Create service" not in sign_in("erin").get("/services").content.decode()
    page = dave.get("/submit?kind=service")
    text = page.content.decode()
    for label in ("Model", "Router address", "Min engines", "Max engines", "Initial engines"):
        assert f">{label}<" in text, label
    assert "Max replicas" not in text
    assert '<h1 id="submit-title">Create service</h1>' in text
    assert re.search(r'href="/services" aria-current="page"', text)
    sent = {"document": page.context["text"], "agreed": page.context["text"], "step": "submit"}
    sent["f:service.router.kind"], sent["f:service.router.url"] = "sglang", "http://router.example.org:30000"
    answer = dave.post("/submit", sent, headers=HTMX)
    service = Service.objects.get()
    assert answer.headers["HX-Redirect"] == f"/services/{service.workload_id}"
    assert service.workload.spec["service"]["router"]["kind"] == "sglang"
    assert service.autoscaler.settings["max_engines"] == 4


def test_viewer_sees_a_service_without_buttons_and_non_members_get_404(
    stage: ServiceStage, sign_in: Callable[[str], Client]
) -> None:
    service = stage.submit()
    at = f"/services/{service.workload_id}"
    assert "Scale out" not in sign_in("erin").get(at).content.decode()
    assert sign_in("erin").post(f"{at}/scale-out", {"num_replicas": "3"}).status_code == 403
    assert sign_in("grace").get(at).status_code == 404
    assert "chat" not in sign_in("grace").get("/services").content.decode()


def test_service_page_states_once_that_measurements_stopped(
    stage: ServiceStage, sign_in: Callable[[str], Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("projects.web.services.pages.timezone.now", stage.stage.clock.now)
    service = stage.serve(engines=2, autoscaler=QUICK_SETTINGS)
    run(stage, 0.5, 6)
    dave, path = sign_in("dave"), f"/services/{service.workload_id}?tab=autoscaler"
    measured = dave.get(path).content.decode()
    assert 'data-label="Reporting engines">2 of 2<' in measured
    assert "Measurements have stopped" not in measured and ">Measured <time" in measured
    stage.stage.clock.advance(1800)
    stopped = dave.get(path).content.decode()
    assert "Measurements have stopped. The table shows the last measured values." in stopped
    assert "Last measurement: <time" in stopped
    assert 'data-label="Reporting engines">0 of 2<' in stopped and "2 of 2<" not in stopped
    assert ">Measured <time" not in stopped
    assert ">Current<" in measured and ">Last value<" in stopped and ">Current<" not in stopped
    assert ">Last state<" in stopped and STATE.findall(stopped) == STATE.findall(measured) != []
    assert '<span class="unit">of ' in stopped and not re.search(r'"unit">of \d+<', stopped)
    overview = dave.get(path.removesuffix("?tab=autoscaler")).content.decode()
    edges = re.findall(r'class="edge" d="([^"]+)"', overview)
    assert edges and not any("L1000 " in edge for edge in edges), "lines end with the last measurement"
    assert overview.count('class="gap"') == 3
    assert ">measured <time" in overview
    stage.stage.clock.advance(3600)
    assert "No metrics were measured in the last hour." in dave.get(path).content.decode()


def test_unknown_scaling_conditions_are_explained_by_missing_engine_metrics() -> None:
    def explain(reporting: int, is_met: bool | None) -> str:
        condition = Condition("no_queue", False, is_met, None, 0, 60, reporting=reporting, engines=4)
        return explain_unknown_states([condition], timezone.now(), is_fresh=True)

    assert explain(0, None) == "No engine reports metrics."
    assert explain(1, None) == "Fewer than half of the engines report each of these metrics."
    assert explain(4, False) == ""
