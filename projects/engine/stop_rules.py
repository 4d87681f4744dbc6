"""Median stopping: which tasks of an array are worse than the others at the same step."""

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

from berth.core.spec.arrays import StopRule
from berth.core.words import format_count
from projects.engine.metrics import Series

WORST = math.inf


@dataclass(frozen=True)
class TaskReports:
    """Reports of one task. Only running tasks can be stopped; the others are compared with them."""

    index: int
    is_running: bool
    series: Series

    @property
    def step(self) -> int:
        """Step of the latest report, or -1 if there is none."""
        if self.series.not_finite_step is not None:
            return self.series.not_finite_step
        return -1 if self.series.last is None else self.series.last.step

    def loss_at(self, step: int, sign: int) -> float | None:
        """Return the best value up to a step, times `sign`, or None if the task has not reached the step.

        The value of a task that reports no finite number any longer is WORST from that step on.
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
        count = bisect_right(self._steps, step)
        return self._best(sign)[count - 1] if count else None

    @cached_property
    def _steps(self) -> list[int]:
        return [point.step for point in self.series.points]

    @cached_property
    def _lowest(self) -> list[float]:
        return list(accumulate((point.value for point in self.series.points), min))

    @cached_property
    def _highest(self) -> list[float]:
        return list(accumulate((-point.value for point in self.series.points), min))

    def _best(self, sign: int) -> list[float]:
        return self._lowest if sign > 0 else self._highest


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


def decide_stops(rule: StopRule, tasks: Sequence[TaskReports]) -> list[TaskStop]:
    """Return the running tasks to stop, sorted by index.

    A task is stopped if its best value is worse than the median of the other tasks' best values up to the
    same step. Tasks that have not reached this step are not compared. The best task is never stopped.
    """
    sign = 1 if rule.goal == "min" else -1
    stops = []
    for task in sorted(tasks, key=lambda each: each.index):
        step = task.step
        if not task.is_running or step < rule.after_steps:
            continue
        loss = task.loss_at(step, sign)
        reached = (other.loss_at(step, sign) for other in tasks if other is not task)
        others = sorted(value for value in reached if value is not None)
        if loss is None or len(others) < rule.min_tasks:
            continue
        median = _median(others)
        if loss > median:
            value = None if loss == WORST else sign * loss
            stops.append(TaskStop(task.index, rule.metric, step, value, sign * median, len(others)))
    return stops


def _median(ordered: Sequence[float]) -> float:
    middle = len(ordered) // 2
    if len(ordered) % 2:
        return ordered[middle]
    return ordered[middle - 1] / 2 + ordered[middle] / 2  # halves, because a sum may overflow
