"""Desired nodes under demand, in whole GPU slots."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pools.engine.autoscaler import (
    AutoscalerConfig,
    ClockValues,
    Pressure,
    Rule,
    ScaleDecision,
    desired_nodes,
)

shows = pytest.mark.shows
LATER = ClockValues(now=1000.0, last_scaled_at=0.0)


def config(low: int = 2, high: int = 16, slots: int = 2, **more: float) -> AutoscalerConfig:
    return dataclasses.replace(AutoscalerConfig(low, high, slots), **more)  # type: ignore[arg-type]


def decide(
    queued: int, running: int, capacity: int, nodes: int, *, current: int | None = None,
    bounds: AutoscalerConfig | None = None, clock: ClockValues = LATER, gang_nodes: int = 0,
) -> ScaleDecision:  # fmt: skip
    pressure = Pressure(queued, running, capacity, nodes, gang_nodes)
    return desired_nodes(pressure, nodes if current is None else current, bounds or config(), clock)


@shows("SKY-13", "SKY-29", "SKY-84")
def test_what_is_queued_adds_the_nodes_that_it_fills() -> None:
    assert decide(12, 4, 8, 4).desired == 10
    assert decide(11, 4, 8, 4).desired == 10
    assert decide(1, 8, 8, 4).desired == 5


@shows("SKY-13", "SKY-30", "SKY-84")
def test_it_grows_no_further_than_its_maximum() -> None:
    assert decide(12, 4, 8, 4, bounds=config(high=6)).desired == 6
    assert decide(10**6, 8, 8, 4).desired == 16


@shows("SKY-29")
def test_while_anything_is_queued_no_fewer_are_wanted_than_before() -> None:
    assert decide(2, 8, 8, 4, current=9).desired == 9


@shows("SKY-29")
def test_a_gang_that_needs_emptier_nodes_asks_for_them() -> None:
    assert decide(3, 8, 8, 4, gang_nodes=3).desired == 7
    assert decide(8, 8, 8, 4, gang_nodes=1).desired == 8


@shows("SKY-17")
def test_with_work_waiting_at_least_the_ready_threshold_is_wanted() -> None:
    assert decide(1, 0, 0, 0, bounds=config(0, 8, ready_threshold=3)).desired == 3
    assert decide(0, 0, 4, 2, current=6, bounds=config(2, 8, ready_threshold=6)).desired == 6


@shows("SKY-31")
def test_growth_does_not_wait_for_the_cooldown() -> None:
    just_now = ClockValues(now=1.0, last_scaled_at=0.9)
    assert decide(2, 8, 8, 4, clock=just_now).desired == 5


@shows("SKY-20", "SKY-40", "SKY-41")
def test_within_the_cooldown_it_does_not_shrink() -> None:
    early, late = (ClockValues(now=now, last_scaled_at=100.0, idle_since=0.0) for now in (129.9, 130.0))
    held = decide(0, 0, 8, 4, clock=early)
    assert (held.desired, held.held) == (4, True)
    assert decide(0, 0, 8, 4, clock=late).desired == 2
    set_back = ClockValues(now=50.0, last_scaled_at=100.0, idle_since=-20.0)
    assert decide(0, 0, 8, 4, clock=set_back).desired == 2


@shows("SKY-14", "SKY-21", "SKY-32", "SKY-33", "SKY-86")
def test_an_idle_pool_goes_to_its_minimum_once_patience_is_over() -> None:
    def idle(seconds: float) -> ScaleDecision:
        return decide(0, 0, 12, 6, clock=ClockValues(now=500.0, idle_since=500.0 - seconds))

    assert idle(59).desired == 6
    assert idle(60).desired == 6
    assert (idle(60.5).desired, idle(60.5).rule) == (2, Rule.IDLE)


@shows("SKY-33", "SKY-38")
def test_a_pool_whose_nodes_still_boot_is_not_idle() -> None:
    bounds = config(1, 4)
    booting = Pressure(queued=0, running=0, capacity=0, nodes=0, booting=4)
    assert desired_nodes(booting, 4, bounds, LATER).desired == 4
    assert desired_nodes(dataclasses.replace(booting, booting=0), 4, bounds, LATER).desired == 1


@shows("SKY-34", "SKY-36")
def test_a_pool_hardly_used_keeps_what_its_work_needs_and_one_more() -> None:
    assert decide(0, 3, 32, 16).desired == 3
    assert decide(0, 4, 32, 16).desired == 3
    assert decide(0, 5, 32, 16).desired == 4


@shows("SKY-34", "SKY-37")
def test_three_tenths_in_use_is_not_hardly_used() -> None:
    assert decide(0, 6, 20, 10).desired == 10
    assert decide(0, 5, 20, 10).desired == 4


@shows("SKY-35")
def test_a_pool_hardly_used_stays_within_its_minimum_and_what_there_is() -> None:
    assert decide(0, 1, 32, 16, bounds=config(low=5)).desired == 5
    assert decide(0, 2, 12, 2, bounds=config(slots=1)).desired == 2


@shows("SKY-37")
def test_a_pool_in_good_use_stays_as_it_is() -> None:
    decision = decide(0, 6, 8, 4)
    assert (decision.desired, decision.rule) == (4, Rule.STEADY)


@shows("SKY-28")
def test_the_rules_are_tried_in_their_order() -> None:
    long_idle = ClockValues(now=1000.0, idle_since=0.0)
    assert decide(1, 0, 32, 16, clock=long_idle).rule == Rule.QUEUED
    assert decide(0, 0, 32, 16, clock=long_idle).rule == Rule.IDLE
    assert decide(0, 1, 32, 16, clock=long_idle).rule == Rule.LOW_UTILISATION
    assert decide(0, 20, 32, 16, clock=long_idle).rule == Rule.STEADY
    assert decide(5, 0, 32, 16, clock=dataclasses.replace(long_idle, expires_at=999.0)).rule == Rule.EXPIRED


@shows("SKY-38")
def test_nothing_is_divided_by_nothing() -> None:
    assert decide(3, 0, 0, 0, bounds=config(slots=0)).desired == 3
    assert decide(0, 0, 0, 0, current=9).desired == 2
    assert decide(0, 5, 0, 0, current=9).desired in range(2, 17)
    assert decide(0, 2, 0, 3).desired == 3
    empty = config(0, 4)
    assert decide(0, 0, 0, 0, bounds=empty).desired == 0
    assert decide(3, 0, 0, 0, bounds=empty).desired == 2


@shows("SKY-39")
def test_a_pool_whose_time_is_over_wants_no_node() -> None:
    over = ClockValues(now=100.0, last_scaled_at=99.0, expires_at=100.0)
    assert decide(50, 8, 8, 4, clock=over).desired == 0
    assert decide(0, 8, 8, 4, clock=dataclasses.replace(over, expires_at=100.1)).desired == 4


AMOUNTS = st.integers(0, 60)
CLOCKS = st.builds(
    ClockValues,
    now=st.floats(0, 1000),
    last_scaled_at=st.none() | st.floats(0, 1500),
    idle_since=st.none() | st.floats(0, 1500),
)


@shows("SKY-14", "SKY-26", "SKY-30", "SKY-38")
@given(
    pressure=st.builds(Pressure, AMOUNTS, AMOUNTS, AMOUNTS, st.integers(0, 20), st.integers(0, 30)),
    low=st.integers(0, 8), more=st.integers(1, 12), slots=st.integers(0, 9), current=st.integers(0, 20),
    clock=CLOCKS,
)  # fmt: skip
def test_the_same_question_has_the_same_answer_within_the_bounds(
    pressure: Pressure, low: int, more: int, slots: int, current: int, clock: ClockValues
) -> None:
    bounds = config(low, low + more, slots)
    current = min(max(current, bounds.min), bounds.max)
    decision = desired_nodes(pressure, current, bounds, clock)
    assert decision == desired_nodes(pressure, current, bounds, clock)
    assert bounds.min <= decision.desired <= bounds.max
    assert decision.reason
    if pressure.queued:
        assert decision.desired >= current
