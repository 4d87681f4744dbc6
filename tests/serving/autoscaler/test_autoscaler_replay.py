"""Tests for replaying recorded metrics with different autoscaler settings."""

from dataclasses import replace

from projects.engine.replicas.config import AutoscalerConfig, ScaleOutPolicy
from projects.engine.replicas.replay import RecordedPoint, engine_hours, replay

CONFIG = AutoscalerConfig(min_engines=1, max_engines=8, evaluation_interval_secs=10.0)


def recorded(count: int, *, usage: float, queued: int = 0, engines: int = 2) -> list[RecordedPoint]:
    """Return a sample for every ten seconds."""
    values = {"avg_token_usage": usage, "total_queue_reqs": queued, "throughput_variance": 0.0}
    return [RecordedPoint(10.0 * number, engines, engines, values) for number in range(count)]


def test_condition_must_hold_for_its_duration_before_a_scale_out() -> None:
    first = replay(recorded(20, usage=0.88), CONFIG, 1).scalings[0]
    assert (first.at, first.engines, first.decision.target) == (30.0, 2, 3)
    slow = replace(CONFIG, scale_out_policy=ScaleOutPolicy(durations={
        "token_usage_high": 90.0, "queue_backlog": 90.0, "queue_latency_high": 90.0, "ttft_high": 90.0,
    }))  # fmt: skip
    assert replay(recorded(20, usage=0.88), slow, 1).scalings[0].at == 90.0


def test_simulated_token_usage_drops_when_engines_are_added() -> None:
    replayed = replay(recorded(200, usage=0.88), CONFIG, 1)
    assert len(replayed.scalings) == 1, "88% of two engines are 59% of three"
    assert replayed.engines[-1] == 3


def test_scaling_decisions_are_separated_by_the_cooldown() -> None:
    replayed = replay(recorded(60, usage=0.99, queued=500), CONFIG, 1)
    times = [scaling.at for scaling in replayed.scalings]
    assert len(times) == 2
    assert times[1] - times[0] >= CONFIG.scale_out_cooldown_secs
    assert max(replayed.engines) == CONFIG.max_engines


def test_idle_engines_are_removed_down_to_the_initial_count() -> None:
    replayed = replay(recorded(400, usage=0.01, engines=4), CONFIG, 2)
    assert replayed.engines[-1] == 2
    assert [scaling.decision.target for scaling in replayed.scalings] == [3, 2]


def test_gap_in_the_samples_restarts_the_condition_duration() -> None:
    points = recorded(3, usage=0.95)
    later = [replace(point, at=point.at + 500.0) for point in points]
    assert replay([*points, *later], CONFIG, 1).scalings == ()


def test_unknown_metrics_cause_no_scaling() -> None:
    silent = [replace(point, reporting=0) for point in recorded(50, usage=0.95, queued=500)]
    assert replay(silent, CONFIG, 1).scalings == ()
    assert replay([], CONFIG, 1).engines == ()


def test_engine_hours_are_the_engine_count_integrated_over_time() -> None:
    assert engine_hours([0.0, 1800.0], [2, 4], 3600.0) == 3.0
