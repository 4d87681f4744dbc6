"""Charts of a service's engine metrics: cache usage, queue, latency and engine count."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from berth.server.web.charts.steps import StepChart, step_chart
from projects.engine.replicas.config import AutoscalerConfig
from projects.models import MetricsPoint, Service

SPAN = timedelta(hours=1)
MOST_POINTS = 400  # points per chart; the CSV file has all points

DATA_HEADS = (
    "Time", "Serving, engines", "Reporting, engines", "Token cache usage, %", "Queued, requests",
    "Queue time p95, ms",
)  # fmt: skip

LONGEST_GAP = 60.0  # minimum seconds for which a sample is valid, however short the interval

Pick = Callable[[MetricsPoint], float | None]


@dataclass(frozen=True, slots=True)
class Axis:
    """Time range of a chart. A sample is valid for `longest_gap` seconds."""

    begin: datetime
    end: datetime
    longest_gap: float


@dataclass(frozen=True, slots=True)
class Chart:
    """`threshold` is drawn as a line, in the chart's unit. `now` is the latest value."""

    key: str
    title: str
    unit: str
    chart: StepChart
    begin: datetime
    now: str
    threshold: str
    has_gaps: bool


def charts_of(service: Service, config: AutoscalerConfig, now: datetime) -> list[Chart]:
    """Return a service's charts, or none without a sample in the last hour."""
    points = _points(service, now)
    if not points:
        return []
    stride = -(-len(points) // MOST_POINTS)
    points = points[::-stride][::-1]  # keep the latest point
    out = config.scale_out_policy
    usage = out.token_usage_threshold * 100
    backlog = float(out.queue_depth_per_engine * max(points[-1].engines, 1))
    waits = out.queue_time_p95_threshold * 1000
    axis = Axis(now - SPAN, now, max(LONGEST_GAP, config.patience))
    return [
        _chart("engines", "Serving engines", "", points, lambda p: p.engines, config.max_engines, axis),
        _chart("usage", "Token cache usage", "%", points, _pick("avg_token_usage", 100), usage, axis),
        _chart("queued", "Queued requests", "", points, _pick("total_queue_reqs", 1), backlog, axis),
        _chart("latency", "Queue time p95", "ms", points, _pick("queue_time_p95", 1000), waits, axis),
    ]


def data_of(service: Service, now: datetime) -> Iterator[list[Any]]:
    """Yield the samples of the charts as CSV rows. Unknown values are empty."""
    usage, queued, latency = (
        _pick("avg_token_usage", 100),
        _pick("total_queue_reqs", 1),
        _pick("queue_time_p95", 1000),
    )
    for point in _points(service, now):
        yield [point.at, point.engines, point.reporting, usage(point), queued(point), latency(point)]


def _points(service: Service, now: datetime) -> list[MetricsPoint]:
    return list(service.points.filter(at__gt=now - SPAN).defer("by_engine").order_by("at"))


def _pick(name: str, factor: float) -> Pick:
    def pick(point: MetricsPoint) -> float | None:
        value: Any = point.values.get(name)
        return None if value is None else float(value) * factor

    return pick


def _chart(
    key: str, title: str, unit: str, points: Sequence[MetricsPoint], pick: Pick, threshold: float, axis: Axis,
) -> Chart:  # fmt: skip
    """Draw unknown values and times without samples as gaps, not as zero."""
    times, values = _steps(points, pick, axis)
    measured = [round(value) if value is not None else 0 for value in values]
    most = max([*measured, 1])
    gaps = [0 if value is not None else most for value in values]
    drawn = step_chart(
        times,
        [("used", measured), ("wanted", gaps)],
        [round(threshold)] * len(times),
        begin=axis.begin.timestamp(),
        end=axis.end.timestamp(),
    )
    last = values[-1]
    return Chart(
        key, title, unit, drawn, axis.begin, "unknown" if last is None else f"{last:,.0f}",
        f"{threshold:,.0f}", any(gaps),
    )  # fmt: skip


def _steps(points: Sequence[MetricsPoint], pick: Pick, axis: Axis) -> tuple[list[float], list[float | None]]:
    """Return times and values. A value that no later sample confirms soon becomes unknown."""
    times, values = list[float](), list[float | None]()
    following = [point.at.timestamp() for point in points[1:]] + [axis.end.timestamp()]
    for point, until in zip(points, following, strict=True):
        at = point.at.timestamp()
        times.append(at)
        values.append(pick(point))
        if until > at + axis.longest_gap:
            times.append(at + axis.longest_gap)
            values.append(None)
    return times, values
