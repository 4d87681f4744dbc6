"""Replay a service's recorded metrics with different autoscaler settings."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from projects.engine.replicas.conditions import ServiceMetrics, add_streak, evaluate_conditions
from projects.engine.replicas.config import AutoscalerConfig
from projects.engine.replicas.decide import (
    Fleet,
    ScalingAction,
    ScalingDecision,
    ScalingTimes,
    decide_from_conditions,
)
from projects.engine.replicas.measures import Measure


@dataclass(frozen=True, slots=True)
class RecordedPoint:
    """Metrics at one point in time. `values` has the keys of a metrics snapshot. Unknown values are None."""

    at: float
    engines: int
    reporting: int
    values: Mapping[str, float | None]


@dataclass(frozen=True, slots=True)
class ReplayedScaling:
    """Scaling decision in a replay, and the number of inference engines before it."""

    at: float
    engines: int
    decision: ScalingDecision


@dataclass(frozen=True, slots=True)
class Replay:
    """Result of a replay: the number of inference engines at each recorded point, and the decisions."""

    engines: tuple[int, ...]
    scalings: tuple[ReplayedScaling, ...]


def replay(points: Sequence[RecordedPoint], config: AutoscalerConfig, initial: int) -> Replay:
    """Return the decisions that an autoscaler would have made with the given settings.

    The replay spreads the recorded token usage evenly over its engines, keeps queues and latencies as
    recorded, and assumes that added engines serve immediately.
    """
    config = replace(config, enabled=True)
    engines = points[0].engines if points else 0
    counts, scalings = list[int](), list[ReplayedScaling]()
    since: dict[str, float] = {}
    clock, last_at, evaluate_at = ScalingTimes(0.0), None, 0.0
    for point in points:
        if last_at is not None and point.at - last_at > config.max_sample_age:
            since = {}
        last_at = point.at
        metrics = _spread_metrics(point, engines)
        evaluated = evaluate_conditions(metrics, config)
        since = {one.name: since.get(one.name, point.at) for one in evaluated if one.is_met}
        if point.at >= evaluate_at:
            evaluate_at = point.at + config.evaluation_interval_secs
            clock = replace(clock, now=point.at)
            held = tuple(add_streak(one, since.get(one.name), point.at) for one in evaluated)
            decision = decide_from_conditions(held, metrics, Fleet(engines, initial), config, clock, False)
            if decision.action is not ScalingAction.NONE:
                scalings.append(ReplayedScaling(point.at, engines, decision))
                engines = decision.target
                clock = ScalingTimes(point.at, point.at, decision.action)
        counts.append(engines)
    return Replay(tuple(counts), tuple(scalings))


def engine_hours(times: Sequence[float], engines: Iterable[int], end: float) -> float:
    """Return the engine-hours of a service, given the times when its engine count changed, and the counts."""
    following = [*times[1:], end]
    return (
        sum(count * (until - at) for at, until, count in zip(times, following, engines, strict=True)) / 3600
    )


def _spread_metrics(point: RecordedPoint, engines: int) -> ServiceMetrics:
    reporting = round(engines * point.reporting / point.engines) if point.engines else 0

    def measure(name: str) -> Measure:
        value = point.values.get(name)
        return Measure(value if reporting else None, reporting if value is not None else 0, engines)

    usage = measure("avg_token_usage")
    if usage.value is not None and engines:
        usage = replace(usage, value=min(usage.value * point.engines / engines, 1.0))
    return ServiceMetrics(
        token_usage=usage,
        queued=measure("total_queue_reqs"),
        running=measure("total_running_reqs"),
        throughput=measure("total_gen_throughput"),
        used_tokens=measure("total_used_tokens"),
        max_tokens=measure("total_max_tokens"),
        queue_time_p95=measure("queue_time_p95"),
        ttft_p95=measure("ttft_p95"),
        ttft_p99=measure("ttft_p99"),
        inter_token_p95=measure("inter_token_latency_p95"),
        relative_variance=measure("throughput_variance"),
    )
