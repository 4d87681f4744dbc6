"""Chart and table of a pool's node counts over time."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from berth.server.web.charts.steps import StepChart, step_chart
from pools.capacity_history import capacity_over_time
from pools.engine.timeline import TimelinePoint
from pools.models import NodePool

SPANS: Mapping[str, tuple[str, timedelta]] = {
    "1h": ("Hour", timedelta(hours=1)),
    "24h": ("Day", timedelta(days=1)),
    "7d": ("Week", timedelta(days=7)),
    "30d": ("30 days", timedelta(days=30)),
}
DEFAULT_SPAN = "24h"
ROWS = 50


@dataclass(frozen=True, slots=True)
class ChartRow:
    at: datetime
    point: TimelinePoint


@dataclass(frozen=True, slots=True)
class CapacityChart:
    """Chart of node counts over time.

    `rows` lists the latest changes, newest first, and `more` is the number of earlier changes.
    """

    span: str
    begin: datetime
    end: datetime
    chart: StepChart
    rows: tuple[ChartRow, ...]
    more: int
    label: str


def build_capacity_chart(pool: NodePool, now: datetime, span: str) -> CapacityChart:
    """Return the chart of node counts over `span`, a key of SPANS.

    Any other value means the default span.
    """
    span = span if span in SPANS else DEFAULT_SPAN
    points = capacity_over_time(pool, now=now, span=SPANS[span][1])
    latest = points[-1]
    return CapacityChart(
        span=span,
        begin=_to_datetime(points[0]),
        end=now,
        chart=_build_step_chart(points, now),
        rows=tuple(ChartRow(_to_datetime(point), point) for point in reversed(points[-ROWS:])),
        more=max(0, len(points) - ROWS),
        label=(
            f"Nodes over time; now {latest.desired} desired, {latest.current} current, "
            f"{latest.pending} pending, {latest.draining} draining"
        ),
    )


def _build_step_chart(points: Sequence[TimelinePoint], now: datetime) -> StepChart:
    return step_chart(
        [point.at for point in points],
        [
            ("used", [point.current for point in points]),
            ("requested", [point.pending for point in points]),
            ("over", [point.draining for point in points]),
        ],
        [point.desired for point in points],
        begin=points[0].at,
        end=now.timestamp(),
    )


def _to_datetime(point: TimelinePoint) -> datetime:
    return datetime.fromtimestamp(point.at, UTC)
