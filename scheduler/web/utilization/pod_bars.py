"""Bars with the GPU utilization of each pod of a workload."""

from collections.abc import Sequence
from dataclasses import dataclass

from scheduler.reports.utilization.summary import PodSummary

MAX_BARS = 16


@dataclass(frozen=True, slots=True)
class PodBar:
    pod: str
    busy_percent: float

    @property
    def rounded_percent(self) -> int:
        return round(self.busy_percent)


@dataclass(frozen=True, slots=True)
class PodBars:
    """One bar per pod, in rank order.

    If there are more than MAX_BARS pods, only the least utilized are included. `equally_low` is the number of
    other pods with the same percentage as `lowest`.
    """

    rows: Sequence[PodBar]
    lowest: PodBar
    equally_low: int
    total: int

    @property
    def has_lowest(self) -> bool:
        """Whether some pods use their GPUs less than others."""
        return self.equally_low + 1 < self.total


def pod_bars(pods: Sequence[PodSummary]) -> PodBars | None:
    """Return the bars, or None if the GPUs of fewer than two pods were measured."""
    measured = [PodBar(pod.name, pod.use.busy_percent) for pod in pods if pod.use.busy_percent is not None]
    if len(measured) < 2:
        return None
    by_use = sorted(measured, key=lambda bar: bar.busy_percent)
    lowest = by_use[0]
    ties = sum(bar.rounded_percent == lowest.rounded_percent for bar in measured) - 1
    return PodBars(by_use[:MAX_BARS] if len(measured) > MAX_BARS else measured, lowest, ties, len(measured))
