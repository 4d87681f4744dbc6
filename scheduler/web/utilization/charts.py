"""Charts and a table of pods' allocated and used resources."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import Q

from berth.core.values.amounts import MILLI
from berth.server.web.charts.steps import HEIGHT, WIDTH, StepChart, step_chart
from berth.server.web.numbers import thousandths
from pools.models import Node
from scheduler.reports.utilization.over_time import MeanUtilization, choose_step, utilization_points
from scheduler.reports.utilization.summary import Utilization

SPANS: Mapping[str, tuple[str, timedelta]] = {
    "1h": ("Hour", timedelta(hours=1)),
    "6h": ("6 hours", timedelta(hours=6)),
    "24h": ("Day", timedelta(days=1)),
    "7d": ("Week", timedelta(days=7)),
}
DEFAULT_SPAN = "1h"
LAST_RUN = "run"  # span key for a workload's last run
MIB_PER_GIB = 1024
MAX_CAPACITY_RATIO = 3  # maximum ratio of capacity to highest value; above it, the capacity is not drawn
# Minimum upper end of the y-axis in thousandths, so that idle processes do not fill a chart.
MIN_TOP = {"cores": 100, "MiB": 100 * MILLI, "GiB": MILLI, "GPUs": MILLI}
ROWS = 60
PointValue = Callable[[MeanUtilization], int | None]


@dataclass(frozen=True, slots=True)
class UtilizationChart:
    """Chart that shows usage as an area and the allocation as a line.

    `now` and `of` are the current usage and the current allocation, in thousandths of the unit.
    `hidden_capacity` is set if the capacity is too high to be drawn.
    """

    key: str
    title: str
    unit: str
    chart: StepChart
    now: int | None
    of: int
    label: str
    top: int
    hidden_capacity: int | None = None

    @property
    def view_box(self) -> str:
        """SVG view box of a small chart. Its scale ends at `top` instead of at the next round number."""
        _, scale = self.chart.marks[0]
        height = max(1, round(HEIGHT * self.top / scale))
        return f"0 {HEIGHT - height} {WIDTH} {height}"

    @property
    def top_label(self) -> str:
        """Label of a small chart's upper edge, such as "100%" if the edge represents all allocated GPUs."""
        if self.unit == "GPUs" and self.top == self.of:
            return "100%"
        unit = self.unit.removesuffix("s") if self.top == MILLI else self.unit
        top = round(self.top, -2) if self.top >= 10 * MILLI else self.top
        return f"{thousandths(top)} {unit}"


@dataclass(frozen=True, slots=True)
class Axis:
    """Time range of a chart. `step` is the number of seconds between two points."""

    begin: datetime
    end: datetime
    step: int


@dataclass(frozen=True, slots=True)
class UtilizationOverTime:
    """Utilization over time.

    `rows` lists the latest points, newest first, and `more` is the number of earlier points.
    """

    span: str
    begin: datetime
    end: datetime
    by_the_hour: bool
    charts: tuple[UtilizationChart, ...]
    rows: tuple[MeanUtilization, ...]
    more: int
    has_gpus: bool

    @property
    def has_allocations(self) -> bool:
        return any(each.chart.line for each in self.charts)


def utilization_over_time(
    pod_filter: Q,
    use: Utilization,
    *,
    span: str,
    end: datetime,
    now: datetime,
    node: Node | None = None,
    started_at: datetime | None = None,
) -> UtilizationOverTime:
    """Return charts for the pods that match `pod_filter`, over the `span` before `end`.

    `span` is a key of SPANS, or LAST_RUN for the time since `started_at`. If `node` is set, the charts show
    its capacity.
    """
    if span == LAST_RUN and started_at is not None:
        # Measurements are stored per minute.
        since = started_at.replace(second=0, microsecond=0)
        end = max(end, since + timedelta(minutes=1))
    else:
        span = span if span in SPANS else DEFAULT_SPAN
        since = end - SPANS[span][1]
    step = choose_step(since, end, now)
    existed_since = node.created_at if node else None
    points = utilization_points(pod_filter, since, end, step, existed_since=existed_since)
    has_gpus = bool(use.allocated_gpu_milli) or any(point.allocated_gpu_milli for point in points)
    return UtilizationOverTime(
        span=span,
        begin=since,
        end=end,
        by_the_hour=step > 60,
        charts=_build_charts(points, use, Axis(since, end, step), node, has_gpus=has_gpus) if points else (),
        rows=tuple(reversed(points[-ROWS:])),
        more=max(0, len(points) - ROWS),
        has_gpus=has_gpus,
    )


@dataclass(frozen=True, slots=True)
class _ResourceSeries:
    """Used and allocated amounts of one resource, now and over time, and its capacity if known."""

    key: str
    title: str
    used: PointValue
    allocated: PointValue
    now: int | None
    allocated_now: int
    capacity: int | None
    is_memory: bool = False


def _build_charts(
    points: Sequence[MeanUtilization], use: Utilization, axis: Axis, node: Node | None, *, has_gpus: bool
) -> tuple[UtilizationChart, ...]:
    series = [
        _ResourceSeries("cpu", "CPU", lambda p: p.cpu_milli, lambda p: p.allocated_cpu_milli,
                use.cpu_milli, use.allocated_cpu_milli, node.cpu_milli if node else None),
        _ResourceSeries("memory", "Memory", lambda p: p.memory_mib, lambda p: p.allocated_memory_mib,
                use.memory_mib, use.allocated_memory_mib, node.memory_mib if node else None, is_memory=True),
    ]  # fmt: skip
    if has_gpus:
        series[:0] = [
            _ResourceSeries("gpu", "GPU utilization", lambda p: p.gpu_milli, lambda p: p.allocated_gpu_milli,
                    use.gpu_milli, use.allocated_gpu_milli, node.gpus * MILLI if node else None),
            _ResourceSeries("gpu-memory", "GPU memory", lambda p: p.gpu_memory_mib,
                    lambda p: p.allocated_gpu_memory_mib, use.gpu_memory_mib, use.allocated_gpu_memory_mib,
                    node.gpus * node.gpu_memory_mib if node else None, is_memory=True),
        ]  # fmt: skip
    charts = [_build_chart(each, points, axis) for each in series]
    return tuple(chart for chart in charts if chart is not None)


def _build_chart(
    series: _ResourceSeries, points: Sequence[MeanUtilization], axis: Axis
) -> UtilizationChart | None:
    """Return a chart, or None if nothing was measured. Gaps in the measurements are left blank."""
    if all(series.used(point) is None for point in points):
        return None
    unit, scaled = _unit_and_scale(series, points)
    times, values, line = list[float](), list[int | None](), list[int | None]()
    end = axis.end.timestamp()
    for place, point in enumerate(points):
        at = point.at.timestamp()
        times.append(at)
        values.append(scaled(series.used(point)))
        line.append(scaled(series.allocated(point)) or None)
        is_last = place + 1 == len(points)
        following = end if is_last else points[place + 1].at.timestamp()
        # The latest minute or hour may not have been stored yet.
        if following > at + axis.step * (2 if is_last else 1):
            times.append(at + axis.step)
            values.append(None)
            line.append(None)
    highest, allocated = max(value or 0 for value in values), max(number or 0 for number in line)
    capacity = scaled(series.capacity) or None
    is_drawn = capacity is not None and capacity <= MAX_CAPACITY_RATIO * max(highest, allocated)
    steps = step_chart(
        times, [("used", values)], line,
        begin=axis.begin.timestamp(), end=end, least=MIN_TOP[unit],
        limit=capacity if is_drawn else None,
    )  # fmt: skip
    requested = f" of {allocated / MILLI:,.2f}" if allocated else ""
    label = f"{series.title}: up to {highest / MILLI:,.2f}{requested} {unit} used"
    if capacity:
        label += f"; capacity {capacity / MILLI:,.2f}"
    return UtilizationChart(
        series.key,
        series.title,
        unit,
        steps,
        scaled(series.now),
        scaled(series.allocated_now) or 0,
        label,
        top=max(highest, allocated, MIN_TOP[unit]),
        hidden_capacity=None if is_drawn else capacity,
    )


def _unit_and_scale(
    series: _ResourceSeries, points: Sequence[MeanUtilization]
) -> tuple[str, Callable[[int | None], int | None]]:
    if series.is_memory:
        amounts = [amount for p in points for amount in (series.used(p), series.allocated(p))]
        return _memory_scale([*amounts, series.capacity])
    return ("cores" if series.key == "cpu" else "GPUs"), lambda amount: amount


def _memory_scale(amounts: Sequence[int | None]) -> tuple[str, Callable[[int | None], int | None]]:
    """Return the unit to use for amounts in MiB, and a function that converts MiB to thousandths of that
    unit.
    """
    divisor = MIB_PER_GIB if max((amount or 0 for amount in amounts), default=0) >= MIB_PER_GIB else 1

    def to_chart_unit(mib: int | None) -> int | None:
        return None if mib is None else round(mib * MILLI / divisor)

    return ("GiB" if divisor == MIB_PER_GIB else "MiB"), to_chart_unit
