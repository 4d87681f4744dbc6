"""Charts of a service's metrics: inference engine count, cache usage, queue and latency."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import groupby
from typing import Any

from berth.core.values.amounts import MILLI
from berth.server.web.charts.steps import StepChart, step_chart
from projects.engine.replicas.config import AutoscalerConfig
from projects.models import MetricsPoint, Service

SPANS: Mapping[str, tuple[str, timedelta]] = {
    "1h": ("Hour", timedelta(hours=1)),
    "6h": ("6 hours", timedelta(hours=6)),
    "24h": ("Day", timedelta(days=1)),
}
DEFAULT_SPAN = "1h"
RECENT = timedelta(hours=1)  # older samples are not shown as the latest metrics
MAX_POINTS = 360  # maximum points per chart; the CSV file is complete

CSV_HEADERS = (
    "Time", "Serving engines", "Reporting engines", "Token cache usage (%)", "Queued requests",
    "Queue time p95 (s)",
)  # fmt: skip

MIN_VALID_SECONDS = 60.0  # samples are valid for at least this long, even if the scrape interval is shorter

Pick = Callable[[MetricsPoint], float | None]


@dataclass(frozen=True, slots=True)
class TimeAxis:
    """Time axis of a chart. A sample is valid for `valid_seconds` seconds."""

    begin: datetime
    end: datetime
    valid_seconds: float

    @property
    def bucket_seconds(self) -> float:
        """Return the length of a bucket in seconds. A chart with more than MAX_POINTS samples groups them
        into buckets.
        """
        return (self.end - self.begin).total_seconds() / MAX_POINTS


@dataclass(frozen=True, slots=True)
class MetricChart:
    """Chart of one metric.

    `now` is the latest value. `threshold` is drawn as a line. Both texts include units.
    """

    key: str
    title: str
    unit: str
    chart: StepChart
    now: str
    threshold: str
    has_gaps: bool
    in_thousandths: bool  # True if the chart's numbers are thousandths of the unit

    @property
    def label(self) -> str:
        return f"{self.title} over time, now {self.now}"

    @property
    def value_labels(self) -> str:
        """Labels of the chart's values, shown on hover. Gaps have no label."""
        return f"reported||{'maximum' if self.key == 'engines' else 'threshold'}"


@dataclass(frozen=True, slots=True)
class MetricsOverTime:
    """Charts of a service over one of the SPANS.

    There are no charts if nothing was measured. `bucket_minutes` is set if a chart shows the highest of
    several samples. `has_older` is True if the only samples are from before the span.
    """

    span: str
    begin: datetime
    end: datetime
    charts: tuple[MetricChart, ...] = ()
    bucket_minutes: int | None = None
    has_older: bool = False


def metrics_over_time(
    service: Service, config: AutoscalerConfig, now: datetime, span: str
) -> MetricsOverTime:
    """Return a service's charts over `span`, a key of SPANS. Any other value selects the default span."""
    span = span_or_default(span)
    points = _points(service, now, span)
    axis = TimeAxis(now - SPANS[span][1], now, _valid_seconds(config))
    if not points:
        return MetricsOverTime(span, axis.begin, now, has_older=service.points.exists())
    minutes = round(axis.bucket_seconds / 60) if len(points) > MAX_POINTS else 0
    return MetricsOverTime(span, axis.begin, now, tuple(_build_charts(config, points, axis)), minutes or None)


def span_or_default(span: str) -> str:
    return span if span in SPANS else DEFAULT_SPAN


def _build_charts(
    config: AutoscalerConfig, points: Sequence[MetricsPoint], axis: TimeAxis
) -> list[MetricChart]:
    policy = config.scale_out_policy
    usage = policy.token_usage_threshold * 100
    backlog = backlog_threshold(config, points[-1].reporting, points[-1].engines)
    queue_time_limit = policy.queue_time_p95_threshold * 1000
    return [
        _build_chart("engines", "Serving engines", "", points, lambda p: p.engines, config.max_engines, axis),
        _build_chart(
            "usage", "Token cache usage", "%", points, _value_getter("avg_token_usage", 100), usage, axis
        ),
        _build_chart(
            "queued", "Queued requests", "", points, _value_getter("total_queue_reqs", 1), backlog, axis
        ),
        _build_chart(
            "latency",
            "Queue time p95",
            "s",
            points,
            _value_getter("queue_time_p95", 1000),
            queue_time_limit,
            axis,
            in_thousandths=True,
        ),
    ]


def backlog_threshold(config: AutoscalerConfig, reporting: int, engines: int) -> float:
    """Return the number of queued requests above which a service scales out.

    It is proportional to the number of engines that report metrics. If none does, all engines count.
    """
    return float(config.scale_out_policy.queue_depth_per_engine * (reporting or engines or 1))


def format_percent(fraction: float) -> str:
    """Format a fraction as a percentage with three significant digits, as in the conditions and charts."""
    percent = 100 * fraction
    return f"{percent:,.3g}%" if percent >= 0.1 or not percent else "below 0.1%"


@dataclass(frozen=True, slots=True)
class LatestMetrics:
    """Latest sample of a service. If the sample is outdated, `old_since` is its time."""

    values: Mapping[str, Any]
    old_since: datetime | None = None


def latest_metrics(configs: Mapping[int, AutoscalerConfig], now: datetime) -> dict[int, LatestMetrics]:
    """Return the latest sample of each service, keyed by service ID.

    Services without a recent sample are omitted.
    """
    rows = MetricsPoint.objects.filter(service__in=list(configs), at__gt=now - RECENT)
    latest = rows.order_by("service", "-at").distinct("service").values_list("service", "at", "values")
    result = {}
    for service, at, values in latest:
        is_current = (now - at).total_seconds() <= _valid_seconds(configs[service])
        result[service] = LatestMetrics(values, None if is_current else at)
    return result


def csv_rows(service: Service, now: datetime, span: str) -> Iterator[list[Any]]:
    """Yield the samples of a chart's span as CSV rows. Unknown values are empty."""
    usage, queued, latency = (
        _value_getter("avg_token_usage", 100),
        _value_getter("total_queue_reqs", 1),
        _value_getter("queue_time_p95", 1),
    )
    for point in _points(service, now, span_or_default(span)):
        yield [point.at, point.engines, point.reporting, usage(point), queued(point), latency(point)]


def _valid_seconds(config: AutoscalerConfig) -> float:
    return max(MIN_VALID_SECONDS, config.max_sample_age)


def _points(service: Service, now: datetime, span: str) -> list[MetricsPoint]:
    return list(service.points.filter(at__gt=now - SPANS[span][1]).defer("by_engine").order_by("at"))


def _value_getter(name: str, factor: float) -> Pick:
    def pick_value(point: MetricsPoint) -> float | None:
        value: Any = point.values.get(name)
        return None if value is None else float(value) * factor

    return pick_value


def _build_chart(
    key: str, title: str, unit: str, points: Sequence[MetricsPoint], pick: Pick, threshold: float,
    axis: TimeAxis,
    *, in_thousandths: bool = False,
) -> MetricChart:  # fmt: skip
    """Return a chart that shows unknown values and missing samples as gaps."""
    times, values = _highest_values(*_step_values(points, pick, axis), axis)
    rounded = [None if value is None else round(value) for value in values]
    highest = max([1, *(value for value in rounded if value is not None)])
    gaps = [0 if value is not None else highest for value in values]
    step_lines = step_chart(
        times,
        [("used", rounded), ("gap", gaps)],
        [round(threshold)] * len(times),
        begin=axis.begin.timestamp(),
        end=axis.end.timestamp(),
    )
    last = pick(points[-1])  # show the same measurement as the conditions

    def format_with_unit(value: float) -> str:
        if not unit:
            return f"{value:,.0f}"
        number = f"{value / MILLI if in_thousandths else value:,.3g}"
        return f"{number}%" if unit == "%" else f"{number} {unit}"

    return MetricChart(
        key, title, unit, step_lines, "not measured" if last is None else format_with_unit(last),
        format_with_unit(threshold),
        any(gaps), in_thousandths,
    )  # fmt: skip


def _step_values(
    points: Sequence[MetricsPoint], pick: Pick, axis: TimeAxis
) -> tuple[list[float], list[float | None]]:
    """Return times and values for a step chart. A value becomes unknown if the next sample is late."""
    times, values = list[float](), list[float | None]()
    following = [point.at.timestamp() for point in points[1:]] + [axis.end.timestamp()]
    for point, until in zip(points, following, strict=True):
        at = point.at.timestamp()
        times.append(at)
        values.append(pick(point))
        if until > at + axis.valid_seconds:
            times.append(at + axis.valid_seconds)
            values.append(None)
    return times, values


def _highest_values(
    times: list[float], values: list[float | None], axis: TimeAxis
) -> tuple[list[float], list[float | None]]:
    """Reduce a series of more than MAX_POINTS values to the highest known value of each bucket."""
    if len(times) <= MAX_POINTS:
        return times, values
    begin, bucket_seconds = axis.begin.timestamp(), axis.bucket_seconds
    shown_times, shown_values = list[float](), list[float | None]()
    samples = zip(times, values, strict=True)
    for _, bucket in groupby(samples, lambda sample: int((sample[0] - begin) // bucket_seconds)):
        rows = list(bucket)
        highest = max((value for _, value in rows if value is not None), default=None)
        shown_times.append(rows[0][0])
        shown_values.append(highest)
        if highest is not None and rows[-1][1] is None:
            shown_times.append(rows[-1][0])
            shown_values.append(None)
    return shown_times, shown_values
