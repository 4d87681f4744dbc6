"""Evaluate scaling conditions, and measure how long they have been met."""

from dataclasses import dataclass, replace
from operator import attrgetter

from projects.engine.replicas import config as names
from projects.engine.replicas import measures
from projects.engine.replicas.config import AutoscalerConfig
from projects.engine.replicas.measures import Measure
from projects.engine.replicas.readings import MetricsSample, SampleWindow

P95 = 0.95


@dataclass(frozen=True, slots=True)
class Condition:
    """Scaling condition.

    `is_met` is None if too few inference engines report. `since` and `held` are the start and the duration of
    the streak. `triggered` is True once the streak has lasted for `duration`.
    """

    name: str
    scales_out: bool
    is_met: bool | None
    value: float | None
    threshold: float
    duration: float
    reporting: int = 0
    engines: int = 0
    since: float | None = None
    held: float = 0.0
    triggered: bool = False


@dataclass(frozen=True, slots=True)
class ServiceMetrics:
    """Metrics of a service. Unknown values are None."""

    token_usage: Measure
    queued: Measure
    running: Measure
    throughput: Measure
    used_tokens: Measure
    max_tokens: Measure
    queue_time_p95: Measure
    ttft_p95: Measure
    ttft_p99: Measure
    inter_token_p95: Measure
    relative_variance: Measure


def compute_metrics(window: SampleWindow, config: AutoscalerConfig) -> ServiceMetrics | None:
    latest = window.latest
    if latest is None:
        return None
    samples = _recent_samples(window.samples, latest.at, config)
    first_token = attrgetter("first_token")
    return ServiceMetrics(
        token_usage=measures.mean(latest, attrgetter("token_usage")),
        queued=measures.sum_values(latest, attrgetter("queued")),
        running=measures.sum_values(latest, attrgetter("running")),
        throughput=measures.sum_values(latest, attrgetter("throughput")),
        used_tokens=measures.sum_values(latest, attrgetter("used_tokens")),
        max_tokens=measures.sum_values(latest, attrgetter("max_tokens")),
        queue_time_p95=measures.quantile(samples, attrgetter("queue_time"), P95),
        ttft_p95=measures.quantile(samples, first_token, P95),
        ttft_p99=measures.quantile(samples, first_token, 0.99),
        inter_token_p95=measures.quantile(samples, attrgetter("inter_token"), P95),
        relative_variance=measures.relative_variance(samples, attrgetter("throughput")),
    )


def add_sample(window: SampleWindow, sample: MetricsSample, config: AutoscalerConfig) -> SampleWindow:
    """Return a new window with the sample added.

    The window starts over after a long gap or if the clock was set back.
    """
    latest = window.latest
    if latest is not None and not 0 <= sample.at - latest.at <= config.max_sample_age:
        window = SampleWindow()
    sample = measures.add_throughput(sample, window.latest)
    recent = _recent_samples((*window.samples, sample), sample.at, config)
    new_window = replace(window, samples=recent)
    since = [
        (condition.name, _streak_start(window, condition.name, sample.at))
        for condition in evaluate_conditions(compute_metrics(new_window, config), config)
        if condition.is_met
    ]
    return replace(new_window, since=tuple(sorted(since)))


def conditions(window: SampleWindow, config: AutoscalerConfig, now: float) -> tuple[Condition, ...]:
    """Return the conditions as of the latest sample.

    If that sample is too old or in the future, all conditions are unknown.
    """
    latest = window.latest
    is_fresh = latest is not None and 0 <= now - latest.at <= config.max_sample_age
    evaluated = evaluate_conditions(compute_metrics(window, config) if is_fresh else None, config)
    at = latest.at if latest is not None else now
    return tuple(add_streak(condition, window.condition_start(condition.name), at) for condition in evaluated)


def add_streak(condition: Condition, since: float | None, at: float) -> Condition:
    """Return the condition, with a streak that began at `since` and lasts until the sample at `at`."""
    if not condition.is_met or since is None:
        return condition
    held = at - since
    return replace(condition, since=since, held=held, triggered=held >= condition.duration)


def evaluate_conditions(metrics: ServiceMetrics | None, config: AutoscalerConfig) -> tuple[Condition, ...]:
    """Evaluate the scaling conditions for the metrics. Streaks depend on earlier samples and are not set."""
    metrics = metrics or _unknown_metrics()
    scale_out, scale_in = config.scale_out_policy, config.scale_in_policy
    backlog_limit = float(scale_out.queue_depth_per_engine * metrics.queued.reporting)
    return (
        _condition_above(
            names.TOKEN_USAGE_HIGH, metrics.token_usage, scale_out.token_usage_threshold, config
        ),
        _condition_above(names.QUEUE_BACKLOG, metrics.queued, backlog_limit, config),
        _condition_above(
            names.QUEUE_LATENCY_HIGH, metrics.queue_time_p95, scale_out.queue_time_p95_threshold, config
        ),
        _condition_above(names.TTFT_HIGH, metrics.ttft_p95, scale_out.ttft_p95_threshold, config),
        _condition_below(names.TOKEN_USAGE_LOW, metrics.token_usage, scale_in.token_usage_threshold, config),
        _condition_below(names.NO_QUEUE, metrics.queued, scale_in.queue_depth_threshold, config),
        _condition_below(
            names.THROUGHPUT_STABLE, metrics.relative_variance, scale_in.throughput_variance_threshold, config
        ),
    )


def _condition_above(name: str, measure: Measure, threshold: float, config: AutoscalerConfig) -> Condition:
    is_met = measure.value > threshold if measure.is_reported_by_half and measure.value is not None else None
    return _build_condition(
        name, measure, is_met, threshold, config.scale_out_policy.durations[name], out=True
    )


def _condition_below(name: str, measure: Measure, threshold: float, config: AutoscalerConfig) -> Condition:
    """Return a scale-in condition, which can be met only if all inference engines report."""
    is_met: bool | None = None
    if measure.is_reported_by_all and measure.value is not None:
        is_met = measure.value <= threshold if name == names.NO_QUEUE else measure.value < threshold
    return _build_condition(
        name, measure, is_met, threshold, config.scale_in_policy.durations[name], out=False
    )


def _build_condition(
    name: str, measure: Measure, is_met: bool | None, threshold: float, duration: float, *, out: bool
) -> Condition:
    return Condition(
        name, out, is_met, measure.value, threshold, duration, measure.reporting, measure.engines
    )


def _streak_start(window: SampleWindow, name: str, at: float) -> float:
    since = window.condition_start(name)
    return at if since is None else since


def _recent_samples(
    samples: tuple[MetricsSample, ...], now: float, config: AutoscalerConfig
) -> tuple[MetricsSample, ...]:
    return tuple(sample for sample in samples if now - sample.at <= config.condition_window_secs)


def _unknown_metrics() -> ServiceMetrics:
    return ServiceMetrics(*(Measure(None, 0, 0) for _ in ServiceMetrics.__dataclass_fields__))
