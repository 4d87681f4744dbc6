"""Tests for autoscaling a service based on its metrics."""

from typing import Any

import pytest

from projects.models import Autoscaler, MetricsPoint, Scaling, Service
from tests.api.conftest import Caller
from tests.fakes.serving import Fail
from tests.services.stage import ServiceStage

QUICK_SETTINGS = {
    "metrics_interval_secs": 5, "evaluation_interval_secs": 5, "condition_window_secs": 30,
    "scale_out_cooldown_secs": 20, "scale_in_cooldown_secs": 40, "max_engines": 4,
    "scale_out_policy": {"condition_duration_secs": 15}, "scale_in_policy": {"condition_duration_secs": 20},
}  # fmt: skip


def load(stage: ServiceStage, usage: float, queued: int = 0) -> None:
    """Make every engine report this load."""
    text = f"sglang:token_usage {usage}\nsglang:num_queue_reqs {queued}\nsglang:gen_throughput 100\n"
    for address in list(stage.engines.engines):
        stage.engines.report(address, text)


def run(stage: ServiceStage, usage: float, ticks: int, queued: int = 0, seconds: float = 5) -> None:
    """Tick at the intervals at which the autoscaler scrapes and evaluates."""
    for _ in range(ticks):
        load(stage, usage, queued)
        stage.tick(seconds=seconds)


def run_until_idle(stage: ServiceStage, service: Service) -> None:
    """Keep the service idle until only its initial engine is left and no scale request is open."""
    for _ in range(36):
        if len(stage.live(service)) == 1 and not Scaling.objects.filter(completed_at=None).exists():
            return
        run(stage, 0.05, 1)
    raise AssertionError("the service never scaled in")


def autoscaled_service(stage: ServiceStage, **changes: Any) -> Service:
    return stage.serve(autoscaler={**QUICK_SETTINGS, **changes})


@pytest.mark.heavy
@pytest.mark.shows("RLX-62", "RLX-68", "RLX-97", "RLX-98", "RLX-99")
def test_service_scales_out_under_load_and_then_in_to_its_initial_engine_count(
    stage: ServiceStage, dave: Caller
) -> None:
    service = autoscaled_service(stage)
    run(stage, 0.88, 10)
    assert len(stage.live(service)) > 1
    run_until_idle(stage, service)
    assert stage.states(service)[0] == "ACTIVE"
    assert len(stage.live(service)) == 1
    history = dave.get("services/chat/autoscaler/scale_history").json()["history"]
    assert {one["status"] for one in history} == {"ACTIVE", "COMPLETED"}
    first = history[-1]
    change = [first[name] for name in ("action", "from_engines", "to_engines", "delta")]
    assert change == ["scale_out", 1, 2, 1]
    assert first["reason"] == "Conditions met: token_usage_high"
    assert first["triggered_conditions"] == ["token_usage_high"]
    assert first["metrics_snapshot"]["avg_token_usage"] == 0.88
    assert first["completed_at"] >= first["triggered_at"]
    assert first["error_message"] is None
    stage.assert_no_orphans()
    assert_history_is_newest_first_filtered_and_limited(dave)


def assert_history_is_newest_first_filtered_and_limited(dave: Caller) -> None:
    path = "services/chat/autoscaler/scale_history"
    whole = dave.get(path).json()
    assert (whole["limit"], whole["action_filter"]) == (100, None)
    times = [one["triggered_at"] for one in whole["history"]]
    assert times == sorted(times, reverse=True)
    one = dave.get(path, limit="1", action="scale_in").json()
    assert ([item["action"] for item in one["history"]], one["action_filter"]) == (["scale_in"], "scale_in")
    assert one["total_count"] == Scaling.objects.filter(action="scale_in").count()
    assert dave.get(path, action="sideways").status_code == 400


@pytest.mark.heavy
@pytest.mark.shows("RLX-64")
def test_missing_metrics_do_not_cause_scale_in(stage: ServiceStage) -> None:
    service = autoscaled_service(stage)
    stage.finish(stage.scale_out(service, num_replicas=3))
    stage.engines.always("metrics", Fail(), engine=stage.live(service)[1].url)
    run(stage, 0.05, 24)
    assert len(stage.live(service)) == 3
    assert MetricsPoint.objects.order_by("-at")[0].reporting == 2


@pytest.mark.shows("RLX-65", "RLX-93", "RLX-95", "RLX-96")
def test_autoscaler_endpoints_report_status_conditions_and_health_without_side_effects(
    stage: ServiceStage, dave: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = autoscaled_service(stage)
    run(stage, 0.88, 3, seconds=3)
    monkeypatch.setattr("projects.api.services.autoscalers.timezone.now", stage.stage.clock.now)
    before = Autoscaler.objects.values().get(service=service)
    status = dave.get("services/chat/autoscaler/status").json()
    assert (status["enabled"], status["running"], status["current_engines"]) == (True, True, 1)
    assert (status["min_engines"], status["max_engines"], status["pending_requests"]) == (1, 4, [])
    assert status["recent_metrics"]["avg_token_usage"] == 0.88
    answer = dave.get("services/chat/autoscaler/conditions").json()
    high = answer["conditions"]["token_usage_high"]
    assert (high["type"], high["triggered"], high["met"]) == ("scale_out", False, True)
    assert (high["threshold"], high["duration_secs"], high["value"]) == (0.85, 15, 0.88)
    assert answer["conditions"]["no_queue"]["type"] == "scale_in"
    assert dave.get("services/chat/autoscaler/health").json()["status"] == "healthy"
    assert Autoscaler.objects.values().get(service=service) == before


@pytest.mark.heavy
@pytest.mark.shows("RLX-94")
def test_disabled_autoscaler_does_not_scale(stage: ServiceStage, dave: Caller) -> None:
    service = autoscaled_service(stage)
    answer = dave.post("services/chat/autoscaler/enable", {"enabled": False}).json()
    assert answer["enabled"] is False
    run(stage, 0.95, 10)
    assert len(stage.live(service)) == 1
    assert not Scaling.objects.exists()


def test_condition_duration_survives_a_new_leader_but_restarts_if_the_clock_is_set_back(
    stage: ServiceStage,
) -> None:
    service = autoscaled_service(stage)
    run(stage, 0.88, 3)
    stage.stage.clock.advance(-3600)
    run(stage, 0.88, 2)
    assert not Scaling.objects.exists()
    stage.lead("first")
    run(stage, 0.88, 2)
    assert Scaling.objects.filter(service=service).exists()


@pytest.mark.shows("RLX-85")
def test_autoscaler_does_not_act_during_a_manual_scale_request(stage: ServiceStage) -> None:
    service = autoscaled_service(stage)
    stage.answers = False
    stage.scale_out(service, num_replicas=2)
    run(stage, 0.88, 8)
    assert not Scaling.objects.exists()
    row = Autoscaler.objects.get(service=service)
    assert "in progress" in (row.last_decision or {})["reason"]
