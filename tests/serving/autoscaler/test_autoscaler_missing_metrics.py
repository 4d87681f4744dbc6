"""Tests that missing data never triggers scaling: silent engines, missing samples, clock jumps."""

from typing import Any

import pytest

from projects.engine.replicas.config import AutoscalerConfig
from projects.engine.replicas.decide import HoldReason, ScalingAction
from projects.engine.replicas.measures import interpolate_quantile
from tests.serving.autoscaler.sampling import Watch, cumulative_observations

QUIET: dict[str, Any] = {"usage": 0.1, "queue": 0.0}


@pytest.mark.shows("RLX-64")
def test_scale_out_needs_readings_from_half_the_engines() -> None:
    assert Watch().take_sample(usage=0.95, silent=2, times=4).decide().action is ScalingAction.OUT
    watch = Watch().take_sample(usage=0.95, silent=3, times=4)
    assert watch.condition("token_usage_high").is_met is None
    assert (watch.decide().action, watch.decide().held) == (ScalingAction.NONE, HoldReason.BLIND)


@pytest.mark.shows("RLX-64")
def test_engines_are_not_removed_while_metrics_are_missing() -> None:
    watch = Watch().take_sample(**QUIET, silent=1, times=20)
    assert (watch.decide().action, watch.decide().held) == (ScalingAction.NONE, HoldReason.BLIND)
    assert watch.condition("no_queue").is_met is None


@pytest.mark.shows("RLX-64", "RLX-101")
def test_missing_reading_restarts_condition_durations() -> None:
    watch = (
        Watch().take_sample(**QUIET, times=12).take_sample(**QUIET, silent=1).take_sample(**QUIET, times=12)
    )
    assert watch.decide().action is ScalingAction.NONE


@pytest.mark.shows("RLX-64")
def test_missing_metric_is_not_treated_as_zero() -> None:
    assert Watch().take_sample(usage=None, queue=0.0, times=20).decide().action is ScalingAction.NONE
    assert Watch().take_sample(usage=0.1, queue=None, times=20).decide().action is ScalingAction.NONE
    assert Watch().take_sample(**QUIET, throughput=None, times=20).decide().action is ScalingAction.NONE


@pytest.mark.shows("RLX-64")
def test_backlog_is_measured_per_reporting_engine() -> None:
    watch = Watch().take_sample(queue=25.0, silent=2, times=4)
    assert watch.condition("queue_backlog").threshold == 20.0
    assert watch.decide().action is ScalingAction.OUT


def test_autoscaler_does_not_act_without_samples() -> None:
    assert Watch().decide().held is HoldReason.BLIND


@pytest.mark.shows("RLX-101")
def test_long_gap_between_samples_restarts_all_condition_durations() -> None:
    watch = Watch().take_sample(usage=0.95, times=3).take_sample(usage=0.95, every=31.0)
    assert watch.condition("token_usage_high").held == 0
    assert watch.decide().action is ScalingAction.NONE


def test_stale_sample_triggers_no_action() -> None:
    watch = Watch().take_sample(usage=0.95, times=4)
    watch.now += 31
    assert watch.decide().held is HoldReason.BLIND


def test_setting_the_clock_back_restarts_condition_durations_and_ends_the_cooldown() -> None:
    watch = Watch().take_sample(usage=0.95, times=4)
    scaled_at = watch.now
    watch.take_sample(usage=0.95, every=-3600.0)
    assert watch.decide().action is ScalingAction.NONE
    assert (
        watch.take_sample(usage=0.95, times=3).decide(last=ScalingAction.OUT, scaled_at=scaled_at).action
        is ScalingAction.OUT
    )


def test_clock_jump_does_not_lengthen_a_condition_duration() -> None:
    watch = Watch().take_sample(**QUIET, times=2).take_sample(**QUIET, every=86400.0)
    assert watch.decide().action is ScalingAction.NONE


@pytest.mark.shows("RLX-86", "RLX-64")
def test_service_over_its_maximum_is_not_scaled_in_without_readings() -> None:
    watch = Watch(config=AutoscalerConfig(max_engines=2)).take_sample(silent=1)
    assert (watch.decide().action, watch.decide().held) == (ScalingAction.NONE, HoldReason.BLIND)


@pytest.mark.shows("RLX-64")
def test_counters_of_a_restarted_engine_start_at_zero() -> None:
    watch = (
        Watch()
        .take_sample(waits=cumulative_observations(*[0.5] * 1000))
        .take_sample(waits=cumulative_observations(*[8.0] * 20))
    )
    assert watch.condition("queue_latency_high").value == pytest.approx(9.75)


@pytest.mark.shows("RLX-64")
def test_percentile_beyond_the_last_bound_equals_the_last_bound() -> None:
    assert interpolate_quantile(cumulative_observations(*[500.0] * 10), 0.95) == 20.0
    assert interpolate_quantile(cumulative_observations(), 0.95) is None
    assert interpolate_quantile(cumulative_observations(*[0.2] * 100), 0.5) == pytest.approx(0.5)
    assert interpolate_quantile(cumulative_observations(*[0.5] * 50, *[8.0] * 50), 0.95) == pytest.approx(9.5)


def test_sample_with_a_future_time_triggers_no_action() -> None:
    watch = Watch().take_sample(usage=0.95, times=4)
    watch.now -= 1
    assert watch.decide().held is HoldReason.BLIND


@pytest.mark.shows("RLX-79", "RLX-64")
def test_throughput_is_unstable_while_a_sample_is_incomplete() -> None:
    watch = Watch().take_sample(**QUIET, times=2).take_sample(**QUIET, silent=1).take_sample(**QUIET, times=4)
    assert watch.condition("throughput_stable").is_met is None
    assert watch.take_sample(**QUIET, times=2).condition("throughput_stable").is_met is None
    assert watch.take_sample(**QUIET, times=2).condition("throughput_stable").is_met is True
