"""Tests for the desired number of nodes, with demand in whole GPU slots."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pools.engine.autoscaler import (
    AutoscalerConfig,
    PoolPressure,
    ScaleDecision,
    ScalingRule,
    ScalingTimes,
    decide_node_count,
)

shows = pytest.mark.shows
AFTER_COOLDOWN = ScalingTimes(now=1000.0, last_scaled_at=0.0)


def config(low: int = 2, high: int = 16, slots: int = 2, **more: float) -> AutoscalerConfig:
    return dataclasses.replace(AutoscalerConfig(low, high, slots), **more)  # type: ignore[arg-type]


def decide(
    queued: int, running: int, capacity: int, nodes: int, *, current: int | None = None,
    bounds: AutoscalerConfig | None = None, clock: ScalingTimes = AFTER_COOLDOWN, gang_nodes: int = 0,
) -> ScaleDecision:  # fmt: skip
    pressure = PoolPressure(queued, running, capacity, nodes, gang_nodes)
    return decide_node_count(pressure, nodes if current is None else current, bounds or config(), clock)


@shows("SKY-13", "SKY-29", "SKY-84")
def test_pool_grows_by_the_number_of_nodes_that_queued_workloads_would_fill() -> None:
    assert decide(12, 4, 8, 4).desired == 10
    assert decide(11, 4, 8, 4).desired == 10
    assert decide(1, 8, 8, 4).desired == 5


@shows("SKY-13", "SKY-30", "SKY-84")
def test_pool_does_not_grow_beyond_its_maximum() -> None:
    assert decide(12, 4, 8, 4, bounds=config(high=6)).desired == 6
    assert decide(10**6, 8, 8, 4).desired == 16


@shows("SKY-29")
def test_pool_does_not_shrink_while_workloads_are_queued() -> None:
    assert decide(2, 8, 8, 4, current=9).desired == 9


@shows("SKY-29")
def test_pool_grows_by_the_number_of_empty_nodes_that_a_gang_needs() -> None:
    assert decide(3, 8, 8, 4, gang_nodes=3).desired == 7
    assert decide(8, 8, 8, 4, gang_nodes=1).desired == 8


@shows("SKY-17")
def test_pending_workloads_raise_the_desired_number_of_nodes_to_the_ready_threshold() -> None:
    assert decide(1, 0, 0, 0, bounds=config(0, 8, ready_threshold=3)).desired == 3
    assert decide(0, 0, 4, 2, current=6, bounds=config(2, 8, ready_threshold=6)).desired == 6


@shows("SKY-31")
def test_scale_up_ignores_the_cooldown() -> None:
    just_now = ScalingTimes(now=1.0, last_scaled_at=0.9)
    assert decide(2, 8, 8, 4, clock=just_now).desired == 5


@shows("SKY-20", "SKY-40", "SKY-41")
def test_pool_does_not_shrink_within_the_cooldown() -> None:
    early, late = (ScalingTimes(now=now, last_scaled_at=100.0, idle_since=0.0) for now in (129.9, 130.0))
    held = decide(0, 0, 8, 4, clock=early)
    assert (held.desired, held.is_delayed) == (4, True)
    assert decide(0, 0, 8, 4, clock=late).desired == 2
    set_back = ScalingTimes(now=50.0, last_scaled_at=100.0, idle_since=-20.0)
    assert decide(0, 0, 8, 4, clock=set_back).desired == 2


@shows("SKY-14", "SKY-21", "SKY-32", "SKY-33", "SKY-86")
def test_idle_pool_shrinks_to_its_minimum_after_the_idle_timeout() -> None:
    def idle(seconds: float) -> ScaleDecision:
        return decide(0, 0, 12, 6, clock=ScalingTimes(now=500.0, idle_since=500.0 - seconds))

    assert idle(59).desired == 6
    assert idle(60).desired == 6
    assert (idle(60.5).desired, idle(60.5).rule) == (2, ScalingRule.IDLE)


@shows("SKY-33", "SKY-38")
def test_pool_with_booting_nodes_is_not_idle() -> None:
    bounds = config(1, 4)
    booting = PoolPressure(queued=0, running=0, capacity=0, nodes=0, booting=4)
    assert decide_node_count(booting, 4, bounds, AFTER_COOLDOWN).desired == 4
    assert decide_node_count(dataclasses.replace(booting, booting=0), 4, bounds, AFTER_COOLDOWN).desired == 1


@shows("SKY-34", "SKY-36")
def test_underutilized_pool_keeps_the_needed_nodes_and_one_spare_node() -> None:
    assert decide(0, 3, 32, 16).desired == 3
    assert decide(0, 4, 32, 16).desired == 3
    assert decide(0, 5, 32, 16).desired == 4


@shows("SKY-34", "SKY-37")
def test_pool_with_thirty_percent_utilization_is_not_underutilized() -> None:
    assert decide(0, 6, 20, 10).desired == 10
    assert decide(0, 5, 20, 10).desired == 4


@shows("SKY-35")
def test_underutilized_pool_stays_between_minimum_and_current_size() -> None:
    assert decide(0, 1, 32, 16, bounds=config(low=5)).desired == 5
    assert decide(0, 2, 12, 2, bounds=config(slots=1)).desired == 2


@shows("SKY-37")
def test_well_utilized_pool_keeps_its_size() -> None:
    decision = decide(0, 6, 8, 4)
    assert (decision.desired, decision.rule) == (4, ScalingRule.STEADY)


@shows("SKY-28")
def test_scaling_rules_apply_in_order() -> None:
    long_idle = ScalingTimes(now=1000.0, idle_since=0.0)
    assert decide(1, 0, 32, 16, clock=long_idle).rule == ScalingRule.QUEUED
    assert decide(0, 0, 32, 16, clock=long_idle).rule == ScalingRule.IDLE
    assert decide(0, 1, 32, 16, clock=long_idle).rule == ScalingRule.LOW_UTILIZATION
    assert decide(0, 20, 32, 16, clock=long_idle).rule == ScalingRule.STEADY
    assert (
        decide(5, 0, 32, 16, clock=dataclasses.replace(long_idle, expires_at=999.0)).rule
        == ScalingRule.EXPIRED
    )


@shows("SKY-38")
def test_empty_pool_causes_no_division_by_zero() -> None:
    assert decide(3, 0, 0, 0, bounds=config(slots=0)).desired == 3
    assert decide(0, 0, 0, 0, current=9).desired == 2
    assert decide(0, 5, 0, 0, current=9).desired in range(2, 17)
    assert decide(0, 2, 0, 3).desired == 3
    empty = config(0, 4)
    assert decide(0, 0, 0, 0, bounds=empty).desired == 0
    assert decide(3, 0, 0, 0, bounds=empty).desired == 2


@shows("SKY-39")
def test_expired_pool_has_no_desired_nodes() -> None:
    over = ScalingTimes(now=100.0, last_scaled_at=99.0, expires_at=100.0)
    assert decide(50, 8, 8, 4, clock=over).desired == 0
    assert decide(0, 8, 8, 4, clock=dataclasses.replace(over, expires_at=100.1)).desired == 4


AMOUNTS = st.integers(0, 60)
CLOCKS = st.builds(
    ScalingTimes,
    now=st.floats(0, 1000),
    last_scaled_at=st.none() | st.floats(0, 1500),
    idle_since=st.none() | st.floats(0, 1500),
)


@shows("SKY-14", "SKY-26", "SKY-30", "SKY-38")
@given(
    pressure=st.builds(PoolPressure, AMOUNTS, AMOUNTS, AMOUNTS, st.integers(0, 20), st.integers(0, 30)),
    low=st.integers(0, 8), more=st.integers(1, 12), slots=st.integers(0, 9), current=st.integers(0, 20),
    clock=CLOCKS,
)  # fmt: skip
def test_scaling_decision_is_deterministic_and_within_bounds(
    pressure: PoolPressure, low: int, more: int, slots: int, current: int, clock: ScalingTimes
) -> None:
    bounds = config(low, low + more, slots)
    current = min(max(current, bounds.min), bounds.max)
    decision = decide_node_count(pressure, current, bounds, clock)
    assert decision == decide_node_count(pressure, current, bounds, clock)
    assert bounds.min <= decision.desired <= bounds.max
    assert decision.reason
    if pressure.queued:
        assert decision.desired >= current
