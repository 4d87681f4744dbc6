"""Preview autoscaler settings, based on the metrics of the last day."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from berth.server.web.charts.steps import StepChart, step_chart
from projects.engine.replicas import document
from projects.engine.replicas.decide import ScalingAction
from projects.engine.replicas.replay import RecordedPoint, engine_hours, replay
from projects.models import Service
from projects.web.services.conditions import use_condition_titles

SPAN = timedelta(hours=24)
MAX_POINTS = 400  # maximum number of points in the chart
MAX_SCALINGS = 20


@dataclass(frozen=True, slots=True)
class ScalingRow:
    at: datetime
    from_engines: int
    to_engines: int
    reason: str


@dataclass(frozen=True, slots=True)
class Preview:
    """Scaling decisions with the previewed settings, compared with the recorded number of engines."""

    begin: datetime
    end: datetime
    chart: StepChart
    outs: int
    ins: int
    least: int
    most: int
    hours: float
    recorded_hours: float
    scalings: list[ScalingRow]
    more: int


def preview_settings(service: Service, settings: Mapping[str, Any], now: datetime) -> Preview | None:
    """Preview how the settings would have scaled the service over the last day.

    Return None if there are no metrics. The settings must be valid.
    """
    config, _ = document.parse(settings)
    rows = (
        service.points.filter(at__gt=now - SPAN)
        .order_by("at")
        .values_list("at", "engines", "reporting", "values")
    )
    points = [
        RecordedPoint(at.timestamp(), engines, reporting, values) for at, engines, reporting, values in rows
    ]
    if not points:
        return None
    replayed = replay(points, config, service.initial_engines)
    times, end = [point.at for point in points], now.timestamp()
    recorded = [point.engines for point in points]
    stride = -(-len(points) // MAX_POINTS)
    begin = datetime.fromtimestamp(times[0], UTC)
    decisions = [scaling.decision for scaling in replayed.scalings]
    return Preview(
        begin=begin,
        end=now,
        chart=step_chart(
            times[::stride], [("used", replayed.engines[::stride])], recorded[::stride],
            begin=times[0], end=end,
        ),
        outs=sum(decision.action is ScalingAction.OUT for decision in decisions),
        ins=sum(decision.action is ScalingAction.IN for decision in decisions),
        least=min(replayed.engines),
        most=max(replayed.engines),
        hours=engine_hours(times, replayed.engines, end),
        recorded_hours=engine_hours(times, recorded, end),
        scalings=[
            ScalingRow(
                datetime.fromtimestamp(scaling.at, UTC), scaling.engines, scaling.decision.target,
                use_condition_titles(scaling.decision.reason),
            )
            for scaling in replayed.scalings[:MAX_SCALINGS]
        ],
        more=max(0, len(replayed.scalings) - MAX_SCALINGS),
    )  # fmt: skip
