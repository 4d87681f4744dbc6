"""Tests for median stopping."""

import math
import random
import statistics
from collections.abc import Sequence

import pytest

from berth.core.spec.sections.arrays import StopRule
from projects.engine.metrics import Series
from projects.engine.stop_rules import TaskReports, TaskStop, decide_stops, steps_to_compare


def task(index: int, values: Sequence[float], *, is_running: bool = True, every: int = 10) -> TaskReports:
    """Return a task that has reported a value every ten steps, starting with step 0."""
    series = Series()
    for number, value in enumerate(values):
        series.add(number * every, value)
    return TaskReports(index, is_running, series)


def rule(**changes: object) -> StopRule:
    values: dict[str, object] = {"metric": "loss", "after_steps": 10, "min_tasks": 3, **changes}
    return StopRule.model_validate(values)


def stops_of(stop_rule: StopRule, tasks: Sequence[TaskReports]) -> list[TaskStop]:
    steps, _ = steps_to_compare(stop_rule, tasks)
    return decide_stops(stop_rule, tasks, steps)


OTHERS = [task(1, [3, 2.0], is_running=False), task(2, [3, 1.8], is_running=False), task(3, [3, 1.0])]


def test_task_worse_than_the_median_is_stopped_and_the_compared_values_are_recorded() -> None:
    (stop,) = stops_of(rule(), [task(0, [3, 2.31]), *OTHERS])
    assert stop.index == 0
    assert stop.sentence == "loss 2.31 at step 10, median 1.8 of 3 other tasks"


def test_task_is_judged_by_its_best_value_so_far() -> None:
    assert stops_of(rule(), [task(0, [1.5, 9]), *OTHERS]) == []
    later = [task(each.index, [3, 2.0, 0.1], is_running=False) for each in OTHERS]
    assert stops_of(rule(), [task(0, [3, 1.9]), *later]) == [], "later values of others do not count"


@pytest.mark.parametrize("changes", [{"after_steps": 11}, {"min_tasks": 4}, {"goal": "max"}])
def test_task_is_not_stopped_unless_every_condition_of_the_rule_is_met(
    changes: dict[str, object],
) -> None:
    assert 0 not in [stop.index for stop in stops_of(rule(**changes), [task(0, [3, 2.31]), *OTHERS])]


def test_max_goal_treats_the_highest_values_as_the_best() -> None:
    tasks = [task(0, [0, 0.1]), task(1, [0, 0.4]), task(2, [0, 0.5]), task(3, [0, 0.9])]
    (stop,) = (each for each in stops_of(rule(goal="max"), tasks) if each.index == 0)
    assert (stop.value, stop.median) == (0.1, 0.5)


def test_ended_tasks_are_compared_but_not_stopped() -> None:
    ended = [task(each.index, [3, each.index], is_running=False) for each in OTHERS]
    assert [stop.index for stop in stops_of(rule(), [*ended, task(0, [3, 2.5])])] == [0]


def test_task_that_reports_nan_ranks_worst() -> None:
    (stop,) = stops_of(rule(), [task(0, [0.5, math.nan]), *OTHERS])
    assert stop.sentence == "loss is not a number at step 10, median 1.8 of 3 other tasks"
    (stop,) = stops_of(rule(), [task(0, [math.nan, math.inf]), *OTHERS])
    assert (stop.value, stop.step) == (None, 10)
    broken = [task(index, [3, math.nan]) for index in (4, 5, 6, 7)]
    assert stops_of(rule(), [task(0, [3, 2.9]), *broken]) == [], "NaN of others is worse"


def test_task_that_recovers_from_nan_is_judged_by_its_values() -> None:
    assert stops_of(rule(), [task(0, [math.nan, 0.5]), *OTHERS]) == []


def test_tasks_with_equal_values_and_the_best_task_are_never_stopped() -> None:
    assert stops_of(rule(), [task(index, [3, 2]) for index in range(8)]) == []
    tasks = [task(index, [10, 1 + index]) for index in range(8)]
    assert [stop.index for stop in stops_of(rule(min_tasks=1), tasks)] == [4, 5, 6, 7]


def test_tasks_that_have_not_reached_the_step_are_not_compared() -> None:
    slow = [task(index, [0.1]) for index in (1, 2, 3)]
    assert stops_of(rule(), [task(0, [3, 2.31]), *slow]) == []


def test_median_of_huge_values_does_not_overflow() -> None:
    huge = [task(index, [1.7e308, 1.7e308]) for index in (1, 2, 3, 4)]
    (stop,) = stops_of(rule(), [task(0, [1.75e308, 1.75e308]), *huge])
    assert stop.median == 1.7e308


@pytest.mark.parametrize("goal", ["min", "max"])
def test_stop_decisions_match_a_reference_implementation(goal: str) -> None:
    random_numbers = random.Random(5)
    choices = [*(float(number) for number in range(9)), math.nan]
    for _ in range(200):
        tasks = [
            task(
                index, random_numbers.choices(choices, weights=[3] * 9 + [1], k=random_numbers.randint(1, 5)),
                is_running=random_numbers.random() < 0.7,
            )
            for index in range(random_numbers.randint(1, 9))
        ]  # fmt: skip
        stop_rule = rule(goal=goal, min_tasks=2)
        sign = 1 if goal == "min" else -1
        expected = []
        for each in tasks:
            loss = each.best_loss_until(each.step, sign)
            reached = [other.best_loss_until(each.step, sign) for other in tasks if other is not each]
            others = [value for value in reached if value is not None]
            if not each.is_running or each.step < 10 or loss is None or len(others) < 2:
                continue
            if loss > statistics.median(others):
                expected.append((each.index, each.step, sign * statistics.median(others), len(others)))
        stops = stops_of(stop_rule, tasks)
        assert [(stop.index, stop.step, stop.median, stop.tasks) for stop in stops] == expected


def test_every_running_task_is_compared_over_several_rounds_of_limited_size() -> None:
    tasks = [task(index, [3] * (2 + index % 3)) for index in range(7)]
    assert steps_to_compare(rule(), tasks, 0, 2) == ([10, 20], 2)
    assert steps_to_compare(rule(), tasks, 2, 2) == ([10, 30], 4)
    assert steps_to_compare(rule(), tasks, 4, 2) == ([20, 30], 6)
    assert steps_to_compare(rule(), tasks, 6, 2) == ([10], 0)
    assert steps_to_compare(rule(), tasks) == ([10, 20, 30], 0)
