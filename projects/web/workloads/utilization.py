"""GPU utilization in the workload list."""

from collections.abc import Iterable, Sequence
from typing import Any, cast

from django.utils import timezone

from berth.core.amounts import MILLI
from berth.server.web.charts.bars import stacked_bar
from projects.idle_gpus import idle_since, mean_utilization
from projects.models import Workload


def attach_utilization(rows: Sequence[Workload], columns: Iterable[str]) -> Sequence[Workload]:
    """Add the utilization in thousandths, its bar and `idle_since` to each row if they are shown.

    None means not measured. Return the rows.
    """
    ids = [row.pk for row in rows if row.gpu_milli_now] if "utilization" in columns else []
    now = timezone.now()
    idle, measured = (idle_since(ids, now), mean_utilization(ids, now)) if ids else ({}, {})
    for row in rows:
        busy, shown = measured.get(row.pk), cast("Any", row)
        shown.utilization, shown.idle_since, shown.utilization_bar = busy, idle.get(row.pk), None
        if busy is not None:
            shown.utilization_percent = round(busy / 10)
            label = f"GPU utilization {shown.utilization_percent} %"
            shown.utilization_bar = stacked_bar([(busy, "used")], MILLI, label)
    return rows


def is_measured(row: Workload) -> bool:
    shown = cast("Any", row)
    return shown.utilization is not None or shown.idle_since is not None
