"""Here what a service's engines reported over time becomes charts: use, queue, latency, engines."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from berth.web.charts import StepChart, step_chart
from projects.engine.replicas.config import AutoscalerConfig
from projects.models import MetricsPoint, Service

SPAN = timedelta(hours=1)
MOST_POINTS = 400

DATA_HEADS = (
    "At", "Serving, engines", "Reporting, engines", "Use of the token cache, %", "Waiting, requests",
    "95 % wait less than, ms",
)  # fmt: skip

Pick = Callable[[MetricsPoint], float | None]


@dataclass(frozen=True, slots=True)
class Chart:
    """`threshold`: drawn as a line, in the chart's unit. `now` is what the last look found."""

    key: str
    title: str
    unit: str
    chart: StepChart
    begin: datetime
    now: str
    threshold: str
    has_gaps: bool


def charts_of(service: Service, config: AutoscalerConfig, now: datetime) -> list[Chart]:
    """None before anybody has looked."""
    found = _points(service, now)
    if not found:
        return []
    out = config.scale_out_policy
    usage = out.token_usage_threshold * 100
    backlog = float(out.queue_depth_per_engine * max(found[-1].engines, 1))
    waits = out.queue_time_p95_threshold * 1000
    return [
        _chart("engines", "Engines that serve", "", found, lambda p: p.engines, config.max_engines, now),
        _chart("usage", "Use of the token cache", "%", found, _of("avg_token_usage", 100), usage, now),
        _chart("queued", "Requests that wait", "", found, _of("total_queue_reqs", 1), backlog, now),
        _chart("latency", "95 % wait less than", "ms", found, _of("queue_time_p95", 1000), waits, now),
    ]


def data_of(service: Service, now: datetime) -> Iterator[list[Any]]:
    """What the charts are drawn from, look by look; what is not known stays empty."""
    usage, queued, latency = (
        _of("avg_token_usage", 100),
        _of("total_queue_reqs", 1),
        _of("queue_time_p95", 1000),
    )
    for point in _points(service, now):
        yield [point.at, point.engines, point.reporting, usage(point), queued(point), latency(point)]


def _points(service: Service, now: datetime) -> list[MetricsPoint]:
    return list(service.points.filter(at__gt=now - SPAN).order_by("-at")[:MOST_POINTS])[::-1]


def _of(name: str, factor: float) -> Pick:
    def pick(point: MetricsPoint) -> float | None:
        value: Any = point.values.get(name)
        return None if value is None else float(value) * factor

    return pick


def _chart(
    key: str, title: str, unit: str, points: Sequence[MetricsPoint], pick: Pick, threshold: float,
    now: datetime,
) -> Chart:  # fmt: skip
    """What is not known is drawn as such, not as nothing."""
    values = [pick(point) for point in points]
    known = [round(value) if value is not None else 0 for value in values]
    most = max([*known, 1])
    gaps = [0 if value is not None else most for value in values]
    line = [round(threshold)] * len(points)
    drawn = step_chart(
        [point.at.timestamp() for point in points], [("used", known), ("wanted", gaps)], line, now.timestamp()
    )
    last = values[-1]
    return Chart(
        key, title, unit, drawn, points[0].at, "unknown" if last is None else f"{last:,.0f}",
        f"{threshold:,.0f}", any(gaps),
    )  # fmt: skip
