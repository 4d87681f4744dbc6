"""Tests for autoscaler decisions: scale out while pressure lasts, scale in while load stays low."""

from dataclasses import replace
from typing import Any

import pytest

from projects.engine.replicas.conditions import add_sample
from projects.engine.replicas.config import AutoscalerConfig, ScaleInPolicy, ScaleOutPolicy
from projects.engine.replicas.decide import HoldReason, ScalingAction
from projects.engine.replicas.readings import MetricReading, MetricsSample, SampleWindow
from tests.serving.autoscaler.sampling import Watch, cumulative_observations

QUIET: dict[str, Any] = {"usage": 0.1, "queue": 0.0}


@pytest.mark.shows("RLX-68", "RLX-69", "RLX-99", "RLX-101")
def test_high_usage_scales_out_after_thirty_seconds() -> None:
    watch = Watch().take_sample(usage=0.86, times=3)
    assert watch.decide().action is ScalingAction.NONE
    condition = watch.condition("token_usage_high")
    assert (condition.is_met, condition.held, condition.triggered) == (True, 20, False)
    decision = watch.take_sample(usage=0.86).decide()
    assert (decision.action, decision.delta, decision.target) == (ScalingAction.OUT, 1, 5)
    assert decision.reason == "Conditions met: token_usage_high"
    assert decision.conditions == ("token_usage_high",)


@pytest.mark.shows("RLX-69")
def test_usage_at_the_threshold_does_not_scale_out() -> None:
    watch = Watch().take_sample(usage=0.85, times=7)
    assert watch.condition("token_usage_high").is_met is False
    assert watch.decide().action is ScalingAction.NONE


@pytest.mark.shows("RLX-70")
def test_more_than_ten_requests_per_engine_for_twenty_seconds_count_as_a_backlog() -> None:
    assert Watch().take_sample(queue=40.0, times=7).decide().action is ScalingAction.NONE
    watch = Watch().take_sample(queue=41.0, times=2)
    assert watch.decide().action is ScalingAction.NONE
    assert watch.take_sample(queue=41.0).decide().conditions == ("queue_backlog",)


@pytest.mark.shows("RLX-66", "RLX-71")
def test_long_queue_time_scales_out_after_fifteen_seconds() -> None:
    watch = Watch().take_sample(waits=cumulative_observations())
    watch.take_sample(waits=cumulative_observations(*[8.0] * 20)).take_sample(
        waits=cumulative_observations(*[8.0] * 40)
    )
    assert watch.condition("queue_latency_high").value == pytest.approx(9.75)
    assert watch.decide().action is ScalingAction.NONE
    assert watch.take_sample(waits=cumulative_observations(*[8.0] * 60)).decide().conditions == (
        "queue_latency_high",
    )


@pytest.mark.shows("RLX-72")
def test_slow_first_token_scales_out_after_fifteen_seconds() -> None:
    watch = Watch().take_sample(first_token=cumulative_observations())
    for answers in (20, 40, 60):
        watch.take_sample(first_token=cumulative_observations(*[15.0] * answers))
    assert watch.condition("ttft_high").triggered
    assert watch.decide().conditions == ("ttft_high",)


@pytest.mark.shows("RLX-71", "RLX-84")
def test_queue_times_before_the_window_do_not_count() -> None:
    slow = (9.0,) * 50
    watch = (
        Watch().take_sample(waits=cumulative_observations()).take_sample(waits=cumulative_observations(*slow))
    )
    for quick in range(1, 8):
        watch.take_sample(waits=cumulative_observations(*slow, *[0.5] * quick))
    assert watch.condition("queue_latency_high").value == pytest.approx(0.95)


@pytest.mark.shows("RLX-99")
def test_decision_names_every_met_condition() -> None:
    decision = Watch().take_sample(usage=0.95, queue=100.0, times=4).decide()
    assert decision.reason == "Conditions met: token_usage_high, queue_backlog"


@pytest.mark.shows("RLX-73", "RLX-75")
@pytest.mark.parametrize(("usage", "more"), [(0.9, 1), (0.91, 2), (0.95, 2), (1.0, 3)])
def test_critical_usage_adds_an_engine_per_ten_points_above_seventy_percent(usage: float, more: int) -> None:
    assert Watch().take_sample(usage=usage, times=4).decide().delta == more


@pytest.mark.shows("RLX-74", "RLX-75")
@pytest.mark.parametrize(("queue", "more"), [(41, 1), (59, 1), (60, 2), (80, 3), (100, 4), (900, 4)])
def test_backlog_adds_an_engine_per_twenty_requests_above_five_per_engine(queue: float, more: int) -> None:
    assert Watch().take_sample(queue=queue, times=4).decide().delta == more


@pytest.mark.shows("RLX-76", "RLX-77", "RLX-78", "RLX-79", "RLX-80")
def test_low_load_removes_one_engine_after_every_condition_has_held_long_enough() -> None:
    watch = Watch().take_sample(**QUIET, times=12)
    assert watch.decide().action is ScalingAction.NONE
    decision = watch.take_sample(**QUIET).decide()
    assert (decision.action, decision.delta, decision.target) == (ScalingAction.IN, 1, 3)
    assert decision.conditions == ("token_usage_low", "no_queue", "throughput_stable")


@pytest.mark.shows("RLX-76", "RLX-77")
def test_usage_at_the_threshold_does_not_count_as_low() -> None:
    watch = Watch().take_sample(usage=0.3, queue=0.0, times=20)
    assert watch.condition("token_usage_low").is_met is False
    assert watch.decide().action is ScalingAction.NONE


@pytest.mark.shows("RLX-76", "RLX-78")
def test_one_queued_request_prevents_scale_in() -> None:
    assert Watch().take_sample(usage=0.1, queue=1.0, times=20).decide().action is ScalingAction.NONE


@pytest.mark.shows("RLX-76", "RLX-79")
def test_unstable_throughput_prevents_scale_in() -> None:
    watch = Watch()
    for _ in range(10):
        watch.take_sample(**QUIET, throughput=20.0).take_sample(**QUIET, throughput=180.0)
    assert watch.condition("throughput_stable").value == pytest.approx(0.505, abs=0.001)
    assert watch.decide().action is ScalingAction.NONE


@pytest.mark.shows("RLX-101")
def test_duration_of_an_interrupted_condition_restarts() -> None:
    watch = (
        Watch()
        .take_sample(**QUIET, times=12)
        .take_sample(usage=0.4, queue=0.0)
        .take_sample(**QUIET, times=12)
    )
    assert watch.decide().action is ScalingAction.NONE
    assert watch.take_sample(**QUIET).decide().action is ScalingAction.IN


@pytest.mark.shows("RLX-81")
@pytest.mark.parametrize(("usage", "removes"), [(0.24, True), (0.25, False), (0.29, False)])
def test_scale_in_requires_remaining_engines_to_stay_below_half_usage(usage: float, removes: bool) -> None:
    decision = Watch(engines=2).take_sample(usage=usage, queue=0.0, times=13).decide()
    assert decision.action is (ScalingAction.IN if removes else ScalingAction.NONE)
    assert removes or decision.held is HoldReason.PROJECTED_USAGE


@pytest.mark.shows("RLX-82", "RLX-10")
def test_scale_in_never_removes_initial_engines() -> None:
    decision = Watch(engines=4, initial=4).take_sample(**QUIET, times=13).decide()
    assert (decision.action, decision.held) == (ScalingAction.NONE, HoldReason.INITIAL_ENGINES)


@pytest.mark.shows("RLX-86")
def test_engine_count_stays_between_minimum_and_maximum() -> None:
    bounded = AutoscalerConfig(min_engines=3, max_engines=5)
    assert Watch(config=bounded).take_sample(queue=900.0, times=4).decide().delta == 1
    full = Watch(engines=5, config=bounded).take_sample(queue=900.0, times=4).decide()
    assert (full.action, full.held, full.conditions) == (
        ScalingAction.NONE,
        HoldReason.MAX_ENGINES,
        ("queue_backlog",),
    )
    least = Watch(engines=3, config=bounded).take_sample(**QUIET, times=13).decide()
    assert (least.action, least.held) == (ScalingAction.NONE, HoldReason.MIN_ENGINES)


@pytest.mark.shows("RLX-86")
def test_engine_count_outside_its_bounds_is_corrected() -> None:
    below = Watch(engines=1, config=AutoscalerConfig(min_engines=8)).take_sample().decide()
    assert (below.action, below.delta, below.conditions) == (ScalingAction.OUT, 4, ("below_min_engines",))
    above = Watch(engines=4, config=AutoscalerConfig(max_engines=2)).take_sample().decide()
    assert (above.action, above.target, above.conditions) == (ScalingAction.IN, 3, ("above_max_engines",))


@pytest.mark.shows("RLX-83")
@pytest.mark.parametrize(("last", "length"), [(ScalingAction.OUT, 60.0), (ScalingAction.IN, 300.0)])
def test_cooldown_depends_on_the_last_scaling_action(last: ScalingAction, length: float) -> None:
    for conditions in ({"queue": 900.0}, QUIET):
        watch = Watch(engines=8).take_sample(**conditions, times=13)
        held = watch.decide(last=last, scaled_at=watch.now - length + 1)
        assert (held.action, held.held) == (ScalingAction.NONE, HoldReason.COOLDOWN)
        assert held.conditions
        assert watch.decide(last=last, scaled_at=watch.now - length).action is not ScalingAction.NONE


@pytest.mark.shows("RLX-85")
def test_autoscaler_does_not_act_while_a_scaling_request_is_pending() -> None:
    decision = Watch().take_sample(queue=900.0, times=4).decide(pending=True)
    assert (decision.action, decision.held) == (ScalingAction.NONE, HoldReason.PENDING)


@pytest.mark.shows("RLX-63", "RLX-94")
def test_disabled_autoscaler_only_observes() -> None:
    watch = Watch(config=AutoscalerConfig(enabled=False)).take_sample(queue=900.0, times=4)
    assert (watch.decide().action, watch.decide().held) == (ScalingAction.NONE, HoldReason.DISABLED)
    assert watch.condition("queue_backlog").triggered


@pytest.mark.shows("RLX-65")
def test_autoscaler_decision_has_no_side_effects() -> None:
    watch = Watch().take_sample(usage=0.95, times=3)
    before = watch.window
    assert [watch.decide() for _ in range(5)] == [watch.decide()] * 5
    assert watch.window is before


@pytest.mark.shows("RLX-92")
def test_duration_of_a_policy_applies_to_all_its_conditions() -> None:
    out = ScaleOutPolicy(durations=dict.fromkeys(ScaleOutPolicy().durations, 0.0))
    into = ScaleInPolicy(durations=dict.fromkeys(ScaleInPolicy().durations, 10.0))
    config = AutoscalerConfig(scale_out_policy=out, scale_in_policy=into)
    assert Watch(config=config).take_sample(queue=900.0).decide().action is ScalingAction.OUT
    assert Watch(config=config).take_sample(**QUIET, times=3).decide().action is ScalingAction.IN


@pytest.mark.shows("RLX-68")
def test_scale_out_condition_takes_precedence_over_low_load() -> None:
    watch = Watch().take_sample(**QUIET, first_token=cumulative_observations(), times=14)
    for answers in (20, 40, 60):
        watch.take_sample(**QUIET, first_token=cumulative_observations(*[15.0] * answers))
    assert watch.condition("token_usage_low").triggered
    assert watch.decide().action is ScalingAction.OUT


def test_scale_in_stops_before_usage_would_be_too_high() -> None:
    config = AutoscalerConfig(scale_in_policy=replace(ScaleInPolicy(), max_delta=5))
    decision = Watch(engines=8, config=config).take_sample(usage=0.29, queue=0.0, times=13).decide()
    assert (decision.action, decision.target) == (ScalingAction.IN, 5)


@pytest.mark.shows("RLX-82", "RLX-86")
def test_initial_engines_are_kept_even_above_the_maximum() -> None:
    watch = Watch(engines=5, initial=4, config=AutoscalerConfig(max_engines=2)).take_sample()
    assert (watch.decide().action, watch.decide().target) == (ScalingAction.IN, 4)
    watch = Watch(engines=4, initial=4, config=AutoscalerConfig(max_engines=2)).take_sample()
    assert (watch.decide().action, watch.decide().held) == (ScalingAction.NONE, HoldReason.INITIAL_ENGINES)


@pytest.mark.shows("RLX-67", "RLX-79")
def test_throughput_is_computed_from_token_counters() -> None:
    # The counter of a restarted engine starts at zero. Throughput must not become negative.
    window, config = SampleWindow(), AutoscalerConfig()
    for step, generated in enumerate([100.0, 600.0, 1100.0, 500.0]):
        reading = MetricReading("engine_0", generated=generated)
        window = add_sample(window, MetricsSample(10.0 * step, ("engine_0",), (reading,)), config)
    throughputs = [sample.readings[0].throughput for sample in window.samples]
    assert throughputs == [None, 50.0, 50.0, 50.0]
