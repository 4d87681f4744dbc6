"""GPU utilization on the overview: the chart of the last day, and averages over the measured time."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from berth.server.web.charts.columns import ColumnChart, stacked_columns
from scheduler.reports.utilization.over_time import MeanGpus, UtilizationHour
from scheduler.reports.utilization.storage import HOUR

FULLY_MEASURED = 75  # percentage of measured time from which the page does not state it


@dataclass(frozen=True, slots=True)
class MeanUtilization:
    """Mean utilization of allocated GPUs while they were measured, in percent.

    `measured` is the measured share of the allocated GPU time, in percent.
    """

    used: int
    measured: int

    @property
    def is_partial(self) -> bool:
        """Whether so little of the time was measured that the page says how much."""
        return self.measured < FULLY_MEASURED


def mean_utilization(hours: Iterable[UtilizationHour]) -> MeanUtilization | None:
    """Return the mean utilization over the given hours, or None if nothing was measured."""
    rows = list(hours)
    measured = sum(hour.measured for hour in rows)
    if not measured:
        return None
    used, allocated = sum(hour.used for hour in rows), sum(hour.allocated for hour in rows)
    return MeanUtilization(round(100 * used / measured), max(1, round(100 * measured / allocated)))


@dataclass(frozen=True, slots=True)
class UtilizationChart:
    """Hourly columns of GPUs: used, allocated but idle, allocated but not measured, and free.

    `readouts` is JSON for the script that shows the numbers under the pointer.
    """

    columns: ColumnChart
    readouts: str


def last_hour_utilization(hours: Sequence[UtilizationHour], now: datetime) -> MeanUtilization | None:
    """Return the mean utilization over the last 60 minutes, or None if nothing was measured.

    The minutes before the current hour are assumed to match the mean of the previous hour.
    """
    *_, before, current = hours
    part = 1 - min(1.0, (now - current.at).total_seconds() / HOUR)
    rest = replace(
        before, allocated=before.allocated * part, measured=before.measured * part, used=before.used * part
    )
    return mean_utilization([rest, current])


def utilization_chart(hourly_means: list[MeanGpus]) -> UtilizationChart:
    amounts = {
        "used": [hour.used for hour in hourly_means],
        "quiet": [hour.measured - hour.used for hour in hourly_means],
        "unknown": [hour.allocated - hour.measured for hour in hourly_means],
        "free": [hour.total - hour.allocated for hour in hourly_means],
    }
    layers = [(kind, [(amount, "") for amount in values]) for kind, values in amounts.items()]
    times = (round(hour.at.timestamp()) for hour in hourly_means)
    readouts = [
        [at, *(round(value, 1) for value in values)]
        for at, *values in zip(times, *amounts.values(), strict=True)
    ]
    return UtilizationChart(stacked_columns(layers, whole=True), json.dumps(readouts, separators=(",", ":")))
