"""Median stopping: find tasks of an array that are worse than the others at the same step."""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

from berth.core.spec.sections.arrays import StopRule
from berth.core.wording.words import format_count
from projects.engine.metrics import Series

WORST = math.inf


@dataclass(frozen=True)
class TaskReports:
    """Metric reports of one task.

    Ended tasks are included in comparisons, but only running tasks can be stopped.
    """

    index: int
    is_running: bool
    series: Series

    @property
    def step(self) -> int:
        """Step of the latest report, or -1 if there is none."""
        if self.series.not_finite_step is not None:
            return self.series.not_finite_step
        return -1 if self.series.last is None else self.series.last.step

    def best_loss_until(self, step: int, sign: int) -> float | None:
        """Return the best value up to a step, multiplied by `sign`, or None if the task has not reached the
        step. A task that stops reporting finite numbers has the value WORST from then on.
        """
        series = self.series
        if series.not_finite_step is not None and series.not_finite_step <= step:
            return WORST
        reached = max(self.step, series.last.step if series.last else -1)
        best = series.lowest if sign > 0 else series.highest
        if reached < step or best is None:
            return None
        if best.step <= step:
            return sign * best.value
        count = bisect_right(self._reported_steps, step)
        return self._best_values(sign)[count - 1] if count else None

    @cached_property
    def _reported_steps(self) -> list[int]:
        return [point.step for point in self.series.points]

    @cached_property
    def _running_minimums(self) -> list[float]:
        return list(accumulate((point.value for point in self.series.points), min))

    @cached_property
    def _negated_running_maximums(self) -> list[float]:
        return list(accumulate((-point.value for point in self.series.points), min))

    def _best_values(self, sign: int) -> list[float]:
        return self._running_minimums if sign > 0 else self._negated_running_maximums


@dataclass(frozen=True, slots=True)
class TaskStop:
    """Decision to stop a task. `value` is None if the task reported no finite number."""

    index: int
    metric: str
    step: int
    value: float | None
    median: float
    tasks: int

    @property
    def sentence(self) -> str:
        value = "is not a number" if self.value is None else f"{self.value:.6g}"
        others = format_count(self.tasks, "other task")
        return f"{self.metric} {value} at step {self.step}, median {self.median:.6g} of {others}"


def steps_to_compare(
    rule: StopRule, tasks: Iterable[TaskReports], first: int = 0, limit: int | None = None
) -> tuple[list[int], int]:
    """Return the latest steps of running tasks in ascending order, and the index of the next task to read.

    Reading starts at task index `first` and ends once there are `limit` different steps. If no tasks are left
    to read, the returned index is 0.
    """
    steps: set[int] = set()
    for task in sorted(tasks, key=lambda each: each.index):
        if task.index < first or not task.is_running or task.step < rule.after_steps:
            continue
        if len(steps) == limit and task.step not in steps:
            return sorted(steps), task.index
        steps.add(task.step)
    return sorted(steps), 0


def decide_stops(rule: StopRule, tasks: Iterable[TaskReports], steps: Sequence[int]) -> list[TaskStop]:
    """Return the running tasks to stop, sorted by index.

    A task is stopped if its best value is worse than the median best value of the other tasks up to the same
    step. Only tasks whose latest step is in `steps` are considered.
    """
    sign = 1 if rule.goal == "min" else -1
    losses: dict[int, list[float]] = {step: [] for step in steps}
    running = []
    for task in tasks:
        for step, reached in losses.items():
            loss = task.best_loss_until(step, sign)
            if loss is None:
                continue
            reached.append(loss)
            if task.is_running and step == task.step:
                running.append((task.index, step, loss))
    for reached in losses.values():
        reached.sort()
    stops = []
    for index, step, loss in sorted(running):
        others = len(losses[step]) - 1
        if others < rule.min_tasks:
            continue
        median = _median_of_others(losses[step], loss)
        if loss > median:
            value = None if loss == WORST else sign * loss
            stops.append(TaskStop(index, rule.metric, step, value, sign * median, others))
    return stops


def _median_of_others(ordered: Sequence[float], value: float) -> float:
    """Return the median of sorted values, ignoring one occurrence of `value`."""
    position = bisect_left(ordered, value)
    count = len(ordered) - 1
    low, high = (ordered[at + (at >= position)] for at in ((count - 1) // 2, count // 2))
    return low if count % 2 else low / 2 + high / 2  # halve the values first, because their sum may overflow
