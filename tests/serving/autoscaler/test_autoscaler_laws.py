"""Tests for autoscaler invariants under random engine reports."""

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from projects.engine.replicas.conditions import add_sample, compute_metrics
from projects.engine.replicas.config import AutoscalerConfig, ScaleInPolicy
from projects.engine.replicas.decide import Fleet, ScalingAction, ScalingTimes, decide, remaining_cooldown
from projects.engine.replicas.measures import interpolate_quantile
from projects.engine.replicas.readings import Histogram, MetricReading, MetricsSample, SampleWindow
from projects.engine.replicas.storing import metrics_to_json, to_json, window_from_json

NAMES = ("engine_0", "engine_1", "engine_2")
BOUNDS = (0.5, 5.0, 20.0, float("inf"))


@st.composite
def histograms(draw: st.DrawFn) -> Histogram:
    counts = draw(st.lists(st.integers(0, 50), min_size=4, max_size=4))
    return Histogram(tuple((bound, float(sum(counts[: i + 1]))) for i, bound in enumerate(BOUNDS)))


@st.composite
def samples(draw: st.DrawFn, at: float) -> MetricsSample:
    part, amount = st.none() | st.floats(0, 1), st.none() | st.floats(0, 500)
    answering = draw(st.sets(st.sampled_from(NAMES)))
    readings = [
        MetricReading(name, draw(part), draw(amount), draw(amount), draw(amount),
                queue_time=draw(st.none() | histograms()), first_token=draw(st.none() | histograms()))
        for name in sorted(answering)
    ]  # fmt: skip
    return MetricsSample(at, NAMES, tuple(readings))


@st.composite
def stories(draw: st.DrawFn) -> tuple[SampleWindow, AutoscalerConfig, float]:
    instant = dict.fromkeys(ScaleInPolicy().durations, 0.0)
    low, high = draw(st.integers(0, 3)), draw(st.integers(3, 6))
    config = AutoscalerConfig(
        min_engines=low, max_engines=high,
        scale_in_policy=ScaleInPolicy(
            token_usage_threshold=1.0, queue_depth_threshold=1000, throughput_variance_threshold=9.0,
            max_delta=draw(st.integers(1, 3)), durations=instant,
        ),
    )  # fmt: skip
    window, now = SampleWindow(), 0.0
    for step in draw(st.lists(st.sampled_from([10.0, 10.0, 10.0, 25.0, 40.0, -5.0]), max_size=8)):
        now += step
        window = add_sample(window, draw(samples(now)), config)
    return window, config, now


FLEETS = st.builds(Fleet, st.integers(4, 8), st.integers(0, 4)) | st.builds(Fleet, st.integers(0, 3))
LAST = st.sampled_from([ScalingAction.OUT, ScalingAction.IN, ScalingAction.NONE])
CLOCKS = st.builds(ScalingTimes, st.just(0.0), st.none() | st.floats(-400, 100), LAST)


@settings(max_examples=40)
@given(stories(), FLEETS, CLOCKS, st.booleans())
def test_autoscaler_respects_engine_limits_and_never_removes_an_initial_engine(
    story: tuple[SampleWindow, AutoscalerConfig, float], fleet: Fleet, clock: ScalingTimes, pending: bool
) -> None:
    window, config, now = story
    scaled_at = None if clock.last_scaled_at is None else now + clock.last_scaled_at
    clock = ScalingTimes(now, scaled_at, clock.last_action)
    decision = decide(window, fleet, config, clock, pending)
    if decision.action is ScalingAction.NONE:
        assert (decision.delta, decision.target) == (0, fleet.engines)
        return
    assert not pending
    assert remaining_cooldown(config, clock) == 0
    assert decision.conditions
    if decision.action is ScalingAction.OUT:
        assert 1 <= decision.delta <= config.scale_out_policy.max_delta
        assert decision.target == fleet.engines + decision.delta <= config.max_engines
    else:
        assert 1 <= decision.delta <= config.scale_in_policy.max_delta
        assert decision.target == fleet.engines - decision.delta >= fleet.initial
        assert decision.target >= config.min_engines


@settings(max_examples=40)
@given(stories(), FLEETS)
def test_no_engine_is_removed_without_complete_readings(
    story: tuple[SampleWindow, AutoscalerConfig, float], fleet: Fleet
) -> None:
    window, config, now = story
    latest = window.latest
    complete = latest is not None and {
        reading.engine for reading in latest.readings
        if reading.token_usage is not None and reading.queued is not None
    } == set(NAMES)  # fmt: skip
    decision = decide(window, fleet, config, ScalingTimes(now), pending=False)
    assert complete or decision.action is not ScalingAction.IN


@settings(max_examples=40)
@given(stories())
def test_stored_autoscaler_window_is_restored_unchanged(
    story: tuple[SampleWindow, AutoscalerConfig, float],
) -> None:
    window, config, _ = story
    again = window_from_json(json.loads(json.dumps(to_json(window), allow_nan=False)))
    assert again == window
    json.dumps(metrics_to_json(compute_metrics(again, config)), allow_nan=False)


@settings(max_examples=40)
@given(stories(), st.floats(-50, 50))
def test_condition_duration_never_exceeds_the_time_covered_by_its_samples(
    story: tuple[SampleWindow, AutoscalerConfig, float], step: float
) -> None:
    window, config, now = story
    for _, since in window.since:
        assert since <= now
    moved = add_sample(window, MetricsSample(now + step, NAMES, ()), config)
    assert moved.since == ()
    assert all(0 <= now + step - sample.at <= config.condition_window_secs for sample in moved.samples)


@given(histograms(), st.floats(0.01, 1.0))
def test_percentile_is_within_the_bucket_of_its_rank(histogram: Histogram, part: float) -> None:
    value = interpolate_quantile(histogram, part)
    if histogram.total == 0:
        assert value is None
        return
    assert value is not None
    rank = part * histogram.total
    upper = next(bound for bound, count in histogram.buckets if count >= rank)
    lower = max((bound for bound, count in histogram.buckets if bound < upper and count < rank), default=0.0)
    assert lower <= value <= min(upper, BOUNDS[-2])
