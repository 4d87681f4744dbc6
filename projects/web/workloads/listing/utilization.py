"""Add GPU utilization to the workload list."""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, cast

from django.utils import timezone

from berth.core.values.amounts import MILLI
from berth.server.web.charts.bars import stacked_bar
from projects.models import Phase, Workload
from projects.queries.idle_gpus import idle_since, last_measured_at, mean_utilization

SAME_TIME = timedelta(minutes=2)


def attach_utilization(rows: Sequence[Workload], columns: Iterable[str]) -> Sequence[Workload]:
    """Add the utilization in thousandths, its bar and `idle_since` to each row if the column is shown, and
    return the rows. For a running workload without a recent measurement, set `is_unmeasured` and
    `measured_at` instead.
    """
    ids = {row.pk for row in rows if row.gpu_milli_now} if "utilization" in columns else set()
    now = timezone.now()
    idle, measured = (idle_since(ids, now), mean_utilization(ids, now)) if ids else ({}, {})
    unmeasured = {
        row.pk for row in rows if row.pk in ids and row.phase == Phase.RUNNING and row.pk not in measured
    }
    last = last_measured_at(unmeasured) if unmeasured else {}
    for row in rows:
        busy, shown = measured.get(row.pk), cast("Any", row)
        shown.utilization, shown.idle_since, shown.utilization_bar = busy, idle.get(row.pk), None
        shown.is_unmeasured, shown.measured_at = row.pk in unmeasured, last.get(row.pk)
        if busy is not None:
            shown.utilization_percent = round(busy / 10)
            label = f"GPU utilization {shown.utilization_percent}%"
            shown.utilization_bar = stacked_bar([(busy, "used")], MILLI, label)
    return rows


def common_last_measurement(rows: Iterable[Workload]) -> datetime | None:
    """Return the earliest of the rows' last measurement times.

    Return None unless at least two rows were measured and all times are about the same.
    """
    ends = [end for row in rows if (end := cast("Any", row).measured_at) is not None]
    return min(ends) if len(ends) > 1 and max(ends) - min(ends) <= SAME_TIME else None


def was_measured(row: Workload) -> bool:
    shown = cast("Any", row)
    return any(value is not None for value in (shown.utilization, shown.idle_since, shown.measured_at))
